// Uniform quantization (Oland & Raj, section 3.1): the range from the least to the greatest value
// is split into 2^N bins, and a value becomes the number of its bin. Values are T = input +
// residual, or input where residual is null; computed in float where the input is float, else in
// double.
//
// Pointers need no alignment. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

struct Extremes {
  double least;
  double greatest;
  bool finite;  // where not, the others mean nothing
};

// For n = 0: infinity and -infinity. Which zero a zero is depends on the target.
Extremes find_extremes(const float* input, const float* residual, std::size_t n);
Extremes find_extremes(const double* input, const float* residual, std::size_t n);

// `bins` bins, a power of two from 2 to 2^16, from `min` over `range`.
struct Grid {
  double min;
  double range;
  double bins;
};

// The middle of a bin.
inline double grid_value(const Grid& grid, std::uint32_t index) {
  return grid.min + grid.range * ((index + 0.5) / grid.bins);
}

// The bin of a value that is not below grid.min.
inline std::uint32_t grid_index(const Grid& grid, double value) {
  const double last = grid.bins - 1;
  const double index = (value - grid.min) * (grid.bins / grid.range);
  return static_cast<std::uint32_t>(index < last ? index : last);
}

// grid_index() of n values.
void quantize_to_grid(const float* input, const float* residual, std::size_t n, const Grid& grid,
                      std::uint16_t* indices);
void quantize_to_grid(const double* input, const float* residual, std::size_t n, const Grid& grid,
                      std::uint16_t* indices);

// grid_value() of n indices; as floats rounded, and the largest float where that overflows.
void read_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, float* out);
void read_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, double* out);
// target[i] += weight * the same as floats, the product rounded first.
void add_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, float weight,
              float* target);

// What a receiver of these indices will lack: residual = T - grid_value(), the value rounded to
// float first where the input is float.
void keep_grid_rest(const float* input, float* residual, std::size_t n, const Grid& grid,
                    const std::uint16_t* indices);
void keep_grid_rest(const double* input, float* residual, std::size_t n, const Grid& grid,
                    const std::uint16_t* indices);

}  // namespace tersewire::kernels
