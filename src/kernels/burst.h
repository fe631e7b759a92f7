// INCEPTIONN's burst (section V, Algorithms 2 and 3, and section VI-A), a value at a time: a tag of
// two bits for each of eight values, then the bits that each of them keeps, in order. It is what
// the hardware makes of the 256 bits that arrive in a cycle. This is the meaning of the bytes, for
// hardware and tests to be held against; bursts.h does the same fast. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

inline constexpr std::size_t kBurstElems = 8;
inline constexpr std::size_t kBurstTagBytes = 2;
inline constexpr std::size_t kMaxBurstBytes = kBurstTagBytes + kBurstElems * sizeof(float);

// How values become bits.
struct BurstFormat {
  unsigned bound_bits = 10;  // the error bound is 2^-bound_bits; 1 to 15
  bool bounded = true;       // false: Algorithm 2 to the letter, which breaks the bound
};

enum class BurstTag : std::uint8_t { kNothing, kByte, kTwoBytes, kFloat };

// How many bytes of data a value with this tag has.
constexpr std::size_t data_bytes(BurstTag tag) {
  return std::array<std::size_t, 4>{0, 1, 2, 4}[static_cast<std::size_t>(tag)];
}

// One value in a burst: its tag, and its data in the low data_bytes(tag) bytes.
struct BurstItem {
  BurstTag tag = BurstTag::kNothing;
  std::uint32_t data = 0;
};

// Algorithm 2, or our bounded mode. `value` is finite.
BurstItem burst_item(float value, BurstFormat format);
// Algorithm 3: what the receiver sees.
float burst_value(BurstItem item, BurstFormat format);

// In all of these n is kBurstElems, or less in the last burst of a tensor.

// Encodes t = input + residual (input where residual is null), all finite; the residual becomes t
// less what the burst says. Writes at most kBurstTagBytes + 4 n bytes; returns the burst's end.
std::uint8_t* encode_burst(const float* input, float* residual, std::size_t n, BurstFormat format,
                           std::uint8_t* out);
// Decodes a burst, which must lie whole in memory; returns its end.
const std::uint8_t* decode_burst(const std::uint8_t* in, BurstFormat format, float* out,
                                 std::size_t n);
// Adds weight times each value, the product rounded first; what has no data is left as it is.
const std::uint8_t* decode_add_burst(const std::uint8_t* in, BurstFormat format, float weight,
                                     float* out, std::size_t n);

}  // namespace tersewire::kernels
