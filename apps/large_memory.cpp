#include "apps/large_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>

#include "apps/command.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{64} << 20;

struct Mapping {
  void* begin = nullptr;
  std::size_t bytes = 0;
};

// Must allocate nothing itself.
class LargeMemory {
 public:
  void lie_in(const std::string& directory) {
    const std::lock_guard lock(mutex_);
    if (directory_ >= 0) ::close(directory_);
    directory_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }

  // Null where there is no room for a file, or there are too many.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (directory_ < 0) return nullptr;
    for (Mapping& mapping : mappings_) {
      if (mapping.begin != nullptr) continue;
      mapping = {mapped(bytes), bytes};
      return mapping.begin;
    }
    return nullptr;
  }

  // Whether it was here.
  bool give_back(void* begin) {
    const std::lock_guard lock(mutex_);
    for (Mapping& mapping : mappings_) {
      if (begin == nullptr || mapping.begin != begin) continue;
      ::munmap(mapping.begin, mapping.bytes);
      mapping = {};
      return true;
    }
    return false;
  }

 private:
  // What has no room now would end the program in the middle (SIGBUS).
  [[nodiscard]] bool has_room(std::size_t bytes) const {
    struct statvfs status {};
    if (::fstatvfs(directory_, &status) != 0) return false;
    return bytes / status.f_frsize < status.f_bavail;
  }

  [[nodiscard]] void* mapped(std::size_t bytes) const {
    if (!has_room(bytes)) return nullptr;
    const int file = ::openat(directory_, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (file < 0) return nullptr;
    void* begin = MAP_FAILED;
    if (::posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) {
      begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    ::close(file);
    return begin == MAP_FAILED ? nullptr : begin;
  }

  std::mutex mutex_;
  int directory_ = -1;
  std::array<Mapping, 64> mappings_{};
};

LargeMemory& large_memory() {
  static LargeMemory memory;
  return memory;
}

// A machine that promises more memory than it has would only find out in the middle.
bool is_more_than_there_is(std::size_t bytes) {
  const auto pages = static_cast<std::size_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const auto page_bytes = static_cast<std::size_t>(std::max(::sysconf(_SC_PAGESIZE), 1L));
  return pages > 0 && bytes / page_bytes > pages;
}

void* allocated(std::size_t bytes) {
  if (bytes >= kLargeBytes) {
    if (void* begin = large_memory().take(bytes)) return begin;
    if (is_more_than_there_is(bytes)) throw std::bad_alloc();
  }
  if (void* begin = std::malloc(bytes > 0 ? bytes : 1)) return begin;
  throw std::bad_alloc();
}

void freed(void* begin) noexcept {
  constexpr std::uintptr_t kPageBytes = 4096;
  const bool on_page = reinterpret_cast<std::uintptr_t>(begin) % kPageBytes == 0;
  if (on_page && large_memory().give_back(begin)) return;
  std::free(begin);
}

}  // namespace

void keep_large_memory_beside(const std::string& path) {
  std::error_code error;
  std::filesystem::path directory = path == kStandardStream
                                        ? std::filesystem::temp_directory_path(error)
                                        : std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  large_memory().lie_in(directory.string());
}

}  // namespace tersewire::apps

// The program's own, in place of the standard library's; the forms for arrays and for what must not
// throw come to these.
void* operator new(std::size_t bytes) { return tersewire::apps::allocated(bytes); }
void operator delete(void* begin) noexcept { tersewire::apps::freed(begin); }
void operator delete(void* begin, std::size_t /*bytes*/) noexcept { tersewire::apps::freed(begin); }
