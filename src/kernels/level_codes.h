// Values as levels from -N to N of a scale, written as codes: the level plus N. Any alignment, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// A value's level is (|T| * factor) * quotient, rounded up or down at random, N at most, with T's
// sign; it decodes to the level times `step`.
struct LevelScale {
  std::int32_t most = 1;  // N, at most 65535
  float factor = 0;
  float quotient = 0;
  float step = 0;
};

// T is input + residual (input alone where residual is null). The level's magnitude is rounded up
// where (words[i] >> 8) * 2^-24 is below what rounding down takes off. The residual becomes T less
// what its level decodes to.
void quantize_levels(const float* input, float* residual, std::size_t n, const LevelScale& scale,
                     const std::uint32_t* words, std::uint32_t* codes);

// The largest of n codes, 0 for none.
std::uint32_t largest_code(const std::uint32_t* codes, std::size_t n);

// out[i] becomes the level times step ...
void level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale, float* out);
// ... or has weight times that added, except level 0, which leaves it as it is.
void add_level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale,
                      float weight, float* out);

}  // namespace tersewire::kernels
