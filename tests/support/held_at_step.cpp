// Preloaded into a program: it stands still once it has written HELD_AT_STEP lines of
// metrics.jsonl, and waits there to be killed, or for a file HELD_UNTIL, which it removes; several
// numbers, as 10,20,30, are several such places, of which it passes the rest where the file is not
// empty. While it stands there is a file HELD_UNTIL.held. Its other threads go on.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "descriptor_path.h"

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static std::atomic<long> lines{0};
  static std::atomic<const char*> next{std::getenv("HELD_AT_STEP")};
  using Write = ssize_t (*)(int, const void*, std::size_t);
  static const auto real = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "write"));
  const ssize_t written = real(descriptor, bytes, size);
  if (written <= 0 || next == nullptr) return written;
  if (!descriptor_path(descriptor).ends_with("/metrics.jsonl")) return written;
  const auto* text = static_cast<const char*>(bytes);
  lines += std::count(text, text + written, '\n');
  const char* until = std::getenv("HELD_UNTIL");
  char* end = nullptr;
  while (next != nullptr && lines >= std::strtol(next, &end, 10)) {
    const std::string held = std::string(until == nullptr ? "" : until) + ".held";
    if (until != nullptr) close(open(held.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct stat found {};
    while (until == nullptr || stat(until, &found) != 0) usleep(1000);
    unlink(held.c_str());
    unlink(until);
    next = *end == ',' && found.st_size == 0 ? end + 1 : nullptr;
  }
  return written;
}
