// Preloaded into a program: it stands still once metrics.jsonl has HELD_AT_STEP lines, and waits
// there to be killed, or for a file HELD_UNTIL, which it removes. Its other threads go on.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "descriptor_path.h"

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static std::atomic<long> lines{0};
  static std::atomic<bool> released{false};
  using Write = ssize_t (*)(int, const void*, std::size_t);
  static const auto real = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "write"));
  const ssize_t written = real(descriptor, bytes, size);
  const char* step = std::getenv("HELD_AT_STEP");
  if (written <= 0 || step == nullptr) return written;
  if (!descriptor_path(descriptor).ends_with("/metrics.jsonl")) return written;
  const auto* text = static_cast<const char*>(bytes);
  lines += std::count(text, text + written, '\n');
  const char* until = std::getenv("HELD_UNTIL");
  while (!released && lines >= std::strtol(step, nullptr, 10)) {
    usleep(1000);
    released = until != nullptr && unlink(until) == 0;
  }
  return written;
}
