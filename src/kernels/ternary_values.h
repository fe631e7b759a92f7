// Digits of -1, 0 and 1 become values. Digits come as two bit arrays, as quantize_ternary() makes
// them: bit `first` + i of `sent` is set where digit i is not 0, of `negative` where it is -1.
//
// Pointers need no alignment. Any thread. The word behind the last digit's may be read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

struct TernaryDigits {
  const std::uint64_t* sent;
  const std::uint64_t* negative;
  std::size_t first;

  // Those from digit i on.
  [[nodiscard]] TernaryDigits from(std::size_t i) const { return {sent, negative, first + i}; }
};

// out[i] = digit i times `value`; +0 where the digit is 0.
void fill_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out);
// The same past the caches, for outputs too large to stay in them. Other threads may see it only
// after end_streaming() in the thread that wrote.
void stream_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out);

// target[i] += digit i times `value`. Where the digit is 0 the target keeps its bits, except for a
// signalling NaN, which may become quiet.
void add_ternary(const TernaryDigits& digits, std::size_t n, float value, float* target);

// levels[i] += digit i; wraps around.
void add_ternary_levels(const TernaryDigits& digits, std::size_t n, std::int32_t* levels);

}  // namespace tersewire::kernels
