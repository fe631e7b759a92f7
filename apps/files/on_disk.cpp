#include "apps/files/on_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

// Nothing where it cannot be opened. Some file systems cannot sync directories (EINVAL).
void sync(const fs::path& path, const std::string& told) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  if (error != 0) fail_file(told, "written", error);
}

}  // namespace

void sync_name(const fs::path& path, const std::string& told) {
  // A directory that may be written but not read cannot be opened; the file is in its place.
  sync(path.has_parent_path() ? path.parent_path() : ".", told);
}

void sync_file(const fs::path& path) { sync(path, path.string()); }

bool make_directories(const fs::path& path, std::error_code& error) {
  const fs::path above = path.parent_path();
  if (!path.has_filename() && path.has_relative_path()) return make_directories(above, error);
  if (!above.empty() && !fs::exists(above, error)) make_directories(above, error);
  if (error || !fs::create_directory(path, error)) return false;
  sync_name(path, path.string());
  return true;
}

}  // namespace tersewire::apps
