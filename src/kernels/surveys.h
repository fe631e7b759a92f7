// First passes over T = input + residual (input alone where residual is null): the largest |T|,
// which says whether everything is finite, and the sums that a codec needs, in the same pass over
// memory. Sums are those of spec/wire-format.md, "Sums": a call does one block, and the caller adds
// the blocks' sums in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tersewire::kernels {

inline constexpr std::size_t kSumBlockElems = 4096;

// A block is added up in so many lanes, whatever a vector's length is: element i in lane
// i % kSumLanes.
inline constexpr std::size_t kSumLanes = 16;

// The sum of a block's lanes, which are used up.
inline double fold_lanes(std::span<double, kSumLanes> lanes) {
  for (std::size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

struct BlockSurvey {
  std::uint32_t largest_bits = 0;  // of |T|, as max_abs_sum_bits gives it
  std::uint32_t count = 0;         // of T below 0; survey_signs alone counts
  double first = 0;
  double second = 0;
};

// n is at most kSumBlockElems in all of them. Where T is not finite the sums mean nothing.

// first: the sum of T - shift, in double; second: of its square.
BlockSurvey survey_moments(const float* input, const float* residual, std::size_t n, float shift);
// first: the sum of T^2.
BlockSurvey survey_squares(const float* input, const float* residual, std::size_t n);
// first: the sum of |T|.
BlockSurvey survey_magnitudes(const float* input, const float* residual, std::size_t n);
// first: the sum of T where T >= 0; second: where T < 0.
BlockSurvey survey_signs(const float* input, const float* residual, std::size_t n);
// The sum of one block of values.
double sum_block(const float* values, std::size_t n);

}  // namespace tersewire::kernels
