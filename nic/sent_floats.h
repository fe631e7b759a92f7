// What a process has said of its memory, and which bytes of a write are floats by that. Any thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace tersewire::nic {

// Bytes of a stream.
struct SentFloats {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const SentFloats&) const = default;
};

// The payload of a message of Gloo in the pieces of one write: behind a head of 48 bytes, the first
// eight of which say how long both are together. No bytes where this is none.
iovec gloo_payload(std::span<const iovec> pieces);

class FloatRegions {
 public:
  void add(const void* begin, std::size_t bytes);
  void remove(const void* begin);

  // The floats among the bytes of a write that begins at byte `offset` of its stream, each stretch
  // beginning and ending with a whole one. Stretches too short to be worth a notice are left out.
  // `message` is one region more, for this write alone.
  [[nodiscard]] std::vector<SentFloats> find(std::span<const iovec> pieces, std::uint64_t offset,
                                             const iovec& message = {}) const;

 private:
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  mutable std::mutex mutex_;
  std::vector<Region> regions_;
};

}  // namespace tersewire::nic
