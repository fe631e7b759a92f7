// Scaling by powers of two (spec/wire-format.md, "Scaling"), so that no quotient by m overflows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tersewire::kernels {

// f(m) for m > 0: 2^k with k = -floor(log2 m), at most 127 and at least -126.
inline float scaling_factor(float m) {
  constexpr int kMantissaBits = 23;
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(m) >> kMantissaBits);
  const auto field = static_cast<std::uint32_t>(std::clamp(254 - exponent, 1, 254));
  return std::bit_cast<float>(field << kMantissaBits);
}

// The largest scale that codecs make of which readers take the N-th part and multiply it with up to
// N again: with any larger one the product might round to infinity.
inline constexpr float kLargestDividedScale = std::bit_cast<float>(std::uint32_t{0x7F7FFFFE});

}  // namespace tersewire::kernels
