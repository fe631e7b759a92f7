#include "apps/files/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "apps/cli/failures.h"
#include "tersewire/error.h"

namespace tersewire::apps {

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_file(path_, "read", errno);
  struct stat status {};
  const int failure = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (failure == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::size_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (failure != 0) fail_file(path_, "read", failure);
  throw Error(ErrorCode::kInvalidArgument, path_ + " is not a regular file; name one");
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::size_t begin, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(path_, "read", errno);
    if (got == 0) {
      throw Error(
          ErrorCode::kDataLoss,
          fmt::format("{} ends after {} bytes, but it had {}: another program is changing it; run "
                      "this again when that has ended",
                      path_, begin, size_));
    }
    begin += static_cast<std::size_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace tersewire::apps
