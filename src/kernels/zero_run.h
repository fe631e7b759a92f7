// Zero-run encoding (3LC section 3.3): runs of the byte 121 become one byte of 243 to 255.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ternary_pack.h"

namespace tersewire::kernels {

inline constexpr std::uint8_t kFirstRunCode = 243;
inline constexpr std::uint64_t kShortestRun = 2;
inline constexpr std::uint64_t kLongestRun = 14;

// How many groups a run code stands for.
constexpr std::uint64_t run_length(std::uint8_t code) {
  return std::uint64_t{code} - kFirstRunCode + kShortestRun;
}

// Encodes a stream of groups that arrives in pieces. A run that is still open at the end of a
// piece is kept, so that the pieces' sizes leave no trace in the bytes.
class ZeroRunWriter {
 public:
  // `out` needs room for one byte a group; never more is touched.
  explicit ZeroRunWriter(std::uint8_t* out) : out_(out) {}

  // Encodes the first `count` groups of a block, from group `from` on.
  void write(const PackedBlock& block, std::size_t from, std::size_t count);
  // The same as writing `count` groups of 121.
  void write_zeros(std::uint64_t count) { run_ += count; }
  // Writes the open run out.
  void flush_run();

  // The run that is still open, in groups.
  [[nodiscard]] std::uint64_t open_run() const { return run_; }
  // The end of what is written.
  [[nodiscard]] std::uint8_t* end() const { return out_; }
  // Goes on at another place; the open run stays open.
  void move_to(std::uint8_t* out) { out_ = out; }

 private:
  std::uint8_t* out_;
  std::uint64_t run_ = 0;
};

}  // namespace tersewire::kernels
