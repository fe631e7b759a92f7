// Floats in fewer bits each, all of them alike: halves, and upper ends of floats
// (spec/wire-format.md, codecs 16 to 18). Pointers need no alignment. Any thread; allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

enum class NarrowFormat : std::uint8_t {
  kFp16,     // IEEE 754 binary16: rounded to nearest, ties to even; at most 65504
  kBf16,     // the upper half of a float, rounded likewise; finite
  kUpper16,  // the upper bits of a float, cut off
  kUpper10,
  kUpper8
};

constexpr unsigned narrow_bits(NarrowFormat format) {
  return format == NarrowFormat::kUpper8 ? 8 : format == NarrowFormat::kUpper10 ? 10 : 16;
}

// n values in a bit stream (spec/wire-format.md, "Bit streams").
constexpr std::size_t narrow_bytes(NarrowFormat format, std::size_t n) {
  const unsigned bits = narrow_bits(format);
  return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

// Writes narrow_bytes(format, n) bytes for t = input + residual (input where residual is null); the
// residual becomes t less what they say. Returns the largest |t| as its bit pattern: where that is
// kNotFinite (kernels.h) or more, the bytes and the residual mean nothing.
std::uint32_t encode_narrow(NarrowFormat format, const float* input, float* residual, std::size_t n,
                            std::uint8_t* out);

void decode_narrow(NarrowFormat format, const std::uint8_t* in, std::size_t n, float* out);
// out[i] += weight times the value, the product rounded first.
void decode_add_narrow(NarrowFormat format, const std::uint8_t* in, float weight, std::size_t n,
                       float* out);

}  // namespace tersewire::kernels
