#include "apps/run/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "apps/cli/failures.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

int opened(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// LOCK_EX or LOCK_SH; whether another process is in the way.
bool is_refused(int descriptor, int lock) {
  return ::flock(descriptor, lock | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Whether it could be locked, or needs no lock.
bool locks(const std::filesystem::path& path) {
  const int descriptor = opened(path);
  if (descriptor < 0) fail_file(path.string(), "read", errno);
  if (!is_refused(descriptor, LOCK_EX)) return true;
  ::close(descriptor);
  return false;
}

}  // namespace

void lock_directory(const std::filesystem::path& path) {
  if (locks(path)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "another process is working in " + path.string() + "; wait until it has ended");
}

void lock_directory_if_free(const std::filesystem::path& path) { locks(path); }

bool is_locked(const std::filesystem::path& path) {
  const int descriptor = opened(path);
  if (descriptor < 0) return false;
  const bool refused = is_refused(descriptor, LOCK_SH);
  ::close(descriptor);
  return refused;
}

}  // namespace tersewire::apps
