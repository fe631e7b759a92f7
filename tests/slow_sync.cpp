// Preloaded into a program: a disk that takes 3.5 s to sync what belongs to a checkpoint.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string_view>

extern "C" int fsync(int descriptor) {
  std::array<char, 32> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link.data(), path.data(), path.size());
  const std::string_view name(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (name.find("/checkpoints/step-") != std::string_view::npos) usleep(3'500'000);
  using Sync = int (*)(int);
  return reinterpret_cast<Sync>(dlsym(RTLD_NEXT, "fsync"))(descriptor);
}
