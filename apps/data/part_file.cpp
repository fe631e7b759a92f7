#include "apps/data/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

void check_is_ours(int descriptor, const std::string& path, struct stat& status) {
  if (::fstat(descriptor, &status) != 0) fail_file(path, "written", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition, path + " is not a file; remove it");
  }
  // Where the file system knows no locks, two processes are found out by the SHA-256.
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorCode::kFailedPrecondition,
                path + " is being written by another process; wait for that one");
  }
}

}  // namespace

PartFile::PartFile(std::string target) : target_(std::move(target)), path_(target_ + ".part") {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_file(path_, "written", errno);
  struct stat status {};
  try {
    check_is_ours(descriptor_, path_, status);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

PartFile::~PartFile() {
  if (bytes_ == 0) remove();
  ::close(descriptor_);
}

void PartFile::append(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_file(path_, "written", errno);
    bytes_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PartFile::clear() {
  if (::ftruncate(descriptor_, 0) != 0) fail_file(path_, "written", errno);
  bytes_ = 0;
}

void PartFile::publish() {
  if (::fsync(descriptor_) != 0) fail_file(path_, "written", errno);
  if (std::rename(path_.c_str(), target_.c_str()) != 0) fail_file(target_, "written", errno);
}

void PartFile::remove() noexcept { ::unlink(path_.c_str()); }

}  // namespace tersewire::apps
