// Preloaded into a program: it stands still once metrics.jsonl has HELD_AT_STEP lines, and waits to
// be killed there. Its other threads go on.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

bool is_metrics(int descriptor) {
  std::array<char, 32> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link.data(), path.data(), path.size());
  return std::string_view(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0)
      .ends_with("/metrics.jsonl");
}

}  // namespace

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static std::atomic<long> lines{0};
  using Write = ssize_t (*)(int, const void*, std::size_t);
  static const auto real = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "write"));
  const ssize_t written = real(descriptor, bytes, size);
  const char* step = std::getenv("HELD_AT_STEP");
  if (written <= 0 || step == nullptr || !is_metrics(descriptor)) return written;
  const auto* text = static_cast<const char*>(bytes);
  lines += std::count(text, text + written, '\n');
  while (lines >= std::strtol(step, nullptr, 10)) pause();
  return written;
}
