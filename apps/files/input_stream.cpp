#include "apps/files/input_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "apps/cli/failures.h"
#include "apps/files/read_file.h"

namespace tersewire::apps {
namespace {

// read() takes no more at once on Linux.
constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

int open_input(const std::string& path) {
  if (path == kStandardStream) return ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

InputStream::InputStream(const std::string& path) : InputStream(path, open_input(path)) {}

InputStream::InputStream(const std::string& path, int descriptor)
    : path_(shown(path)), descriptor_(descriptor) {
  if (descriptor_ < 0) fail_file(path_, "read", errno);
  struct stat status {};
  const int failure = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  const bool is_directory = S_ISDIR(status.st_mode);
  const bool ends = S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode) || path == kStandardStream;
  if (failure == 0 && ends && !is_directory) {
    const off_t at = S_ISREG(status.st_mode) ? ::lseek(descriptor_, 0, SEEK_CUR) : -1;
    // What the system makes as it is read has no size.
    if (at >= 0 && at < status.st_size) left_ = static_cast<std::uint64_t>(status.st_size - at);
    return;
  }
  ::close(descriptor_);
  if (failure != 0 || is_directory) fail_file(path_, "read", failure != 0 ? failure : EISDIR);
  throw Error(ErrorCode::kInvalidArgument, path_ + " is neither a file nor a pipe; name a file");
}

InputStream::~InputStream() { ::close(descriptor_); }

std::unique_ptr<InputStream> InputStream::if_exists(const std::string& path) {
  const int descriptor = open_input(path);
  if (descriptor < 0 && errno == ENOENT) return nullptr;
  return std::unique_ptr<InputStream>(new InputStream(path, descriptor));
}

std::size_t InputStream::read(std::span<std::byte> out) {
  if (peeked_.empty()) return read_descriptor(out);
  const std::size_t bytes = std::min(out.size(), peeked_.size());
  std::copy_n(peeked_.begin(), bytes, out.begin());
  peeked_.erase(peeked_.begin(), peeked_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return bytes;
}

std::optional<std::uint64_t> InputStream::left() const {
  if (!left_) return std::nullopt;
  return peeked_.size() + *left_;
}

ByteView InputStream::peek(std::size_t bytes) {
  std::size_t held = peeked_.size();
  if (held < bytes) peeked_.resize(bytes);
  while (held < bytes) {
    const std::size_t got = read_descriptor(std::span(peeked_).subspan(held));
    if (got == 0) break;
    held += got;
  }
  peeked_.resize(held);
  return ByteView(peeked_).first(std::min(held, bytes));
}

Bytes InputStream::read_rest() {
  // One byte more than expected: the end is seen without growing.
  Bytes bytes(left().value_or(0) + 1);
  std::size_t size = 0;
  for (;;) {
    if (size == bytes.size()) bytes.resize(size + std::max(size / 2, kReadBytes));
    const std::size_t got = read(std::span(bytes).subspan(size));
    if (got == 0) break;
    size += got;
  }
  bytes.resize(size);
  return bytes;
}

std::size_t InputStream::read_descriptor(std::span<std::byte> out) {
  for (;;) {
    const ssize_t got = ::read(descriptor_, out.data(), std::min(out.size(), kMaxReadBytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(path_, "read", errno);
    if (left_) *left_ -= std::min(*left_, static_cast<std::uint64_t>(got));
    return static_cast<std::size_t>(got);
  }
}

}  // namespace tersewire::apps
