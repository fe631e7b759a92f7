#include "apps/files/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/files/on_disk.h"
#include "apps/files/read_file.h"

namespace tersewire::apps {

namespace {

namespace fs = std::filesystem;

// write() takes no more at once on Linux.
constexpr std::size_t kMaxWriteBytes = std::size_t{1} << 30;

constexpr std::string_view kTemporaryPrefix = ".tersewire-";
constexpr std::string_view kTemporarySuffix = ".tmp";

// Where a link leads, to a file that need not be there yet.
fs::path followed(fs::path path) {
  constexpr int kMostLinks = 40;  // as the system's
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

}  // namespace

NewFile::NewFile(std::string path) : path_(std::move(path)), target_(followed(path_).string()) {
  if (path_ == kStandardStream) {
    open_standard_output();
    return;
  }
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail_file(path_, "written", errno);
  if (exists && S_ISDIR(status.st_mode)) fail_file(path_, "written", EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    replaces_ = false;
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_file(path_, "written", errno);
    return;
  }
  if (exists) {
    if (::access(path_.c_str(), W_OK) != 0) fail_file(path_, "written", errno);
    mode_ = status.st_mode & 07777U;
  }
  open_temporary();
  if (exists && ::fchmod(descriptor_, mode_) != 0) fail_file(path_, "written", errno);
}

void NewFile::open_standard_output() {
  path_ = "standard output";
  if (::isatty(STDOUT_FILENO) != 0) {
    throw WrongUsage("standard output is a terminal; redirect it, or name a file");
  }
  replaces_ = false;
  descriptor_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (descriptor_ < 0) fail_file(path_, "written", errno);
}

bool is_temporary_file(std::string_view name) {
  return name.starts_with(kTemporaryPrefix) && name.ends_with(kTemporarySuffix);
}

template <typename Make>
void NewFile::name_temporary(const Make& make) {
  for (int i = 0; temporary_.empty(); ++i) {
    const std::string name =
        fmt::format("{}{}-{}{}", kTemporaryPrefix, ::getpid(), i, kTemporarySuffix);
    const std::string candidate = (fs::path(target_).parent_path() / name).string();
    if (make(candidate.c_str())) {
      temporary_ = candidate;
    } else if (errno != EEXIST) {
      fail_file(path_, "written", errno);
    }
  }
}

void NewFile::open_temporary() {
  const fs::path directory = fs::path(target_).parent_path();
  // Not every file system has files without names, and their names are given by way of /proc.
  if (::access("/proc/self/fd", X_OK) == 0) {
    descriptor_ = ::open(directory.empty() ? "." : directory.c_str(),
                         O_WRONLY | O_TMPFILE | O_CLOEXEC, mode_);
  }
  if (descriptor_ >= 0) return;
  name_temporary([&](const char* name) {
    descriptor_ = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_);
    return descriptor_ >= 0;
  });
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw ReaderGone();
    if (written < 0) fail_file(path_, "written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::finish() {
  if (replaces_ && ::fsync(descriptor_) != 0) fail_file(path_, "written", errno);
  if (replaces_ && temporary_.empty()) {
    const std::string nameless = fmt::format("/proc/self/fd/{}", descriptor_);
    name_temporary([&](const char* name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    });
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_file(path_, "written", errno);
}

void NewFile::publish() {
  if (!replaces_) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_file(path_, "written", errno);
  temporary_.clear();
  sync_name(target_, path_);
}

void write_new_file(const std::string& path, ByteView bytes) {
  NewFile file(path);
  file.write(bytes);
  file.finish();
  file.publish();
}

}  // namespace tersewire::apps
