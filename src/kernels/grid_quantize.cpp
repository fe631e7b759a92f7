#include "grid_quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "grid_quantize.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;
using F32 = hn::Rebind<float, F64>;
using I32 = hn::Rebind<std::int32_t, F64>;
using U16 = hn::Rebind<std::uint16_t, F64>;
using VecF64 = hn::Vec<F64>;

// T at i, as doubles.
template <bool kResidual>
HWY_INLINE VecF64 load_sum(const float* input, const float* residual, std::size_t i) {
  auto t = hn::LoadU(F32(), input + i);
  if constexpr (kResidual) t = hn::Add(t, hn::LoadU(F32(), residual + i));
  return hn::PromoteTo(F64(), t);
}
template <bool kResidual>
HWY_INLINE VecF64 load_sum(const double* input, const float* residual, std::size_t i) {
  VecF64 t = hn::LoadU(F64(), input + i);
  if constexpr (kResidual) {
    t = hn::Add(t, hn::PromoteTo(F64(), hn::LoadU(F32(), residual + i)));
  }
  return t;
}

template <bool kResidual, typename T>
HWY_INLINE double sum_at(const T* input, const float* residual, std::size_t i) {
  if constexpr (kResidual) return input[i] + residual[i];
  return input[i];
}

template <bool kResidual, typename T>
Extremes extremes_of(const T* HWY_RESTRICT input, const float* HWY_RESTRICT residual,
                     std::size_t n) {
  const F64 d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  VecF64 least = hn::Set(d, kInfinity);
  VecF64 greatest = hn::Set(d, -kInfinity);
  VecF64 not_finite = hn::Zero(d);  // t - t is 0, or else NaN
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF64 t = load_sum<kResidual>(input, residual, i);
    least = hn::Min(least, t);
    greatest = hn::Max(greatest, t);
    not_finite = hn::Add(not_finite, hn::Sub(t, t));
  }
  Extremes found{hn::GetLane(hn::MinOfLanes(d, least)), hn::GetLane(hn::MaxOfLanes(d, greatest)),
                 hn::GetLane(hn::SumOfLanes(d, not_finite)) == 0};
  for (; i < n; ++i) {
    const double t = sum_at<kResidual>(input, residual, i);
    found.least = t < found.least ? t : found.least;
    found.greatest = t > found.greatest ? t : found.greatest;
    found.finite &= std::isfinite(t);
  }
  return found;
}

template <bool kResidual, typename T>
void quantize_of(const T* HWY_RESTRICT input, const float* HWY_RESTRICT residual, std::size_t n,
                 const Grid& grid, std::uint16_t* HWY_RESTRICT indices) {
  const F64 d;
  const std::size_t lanes = hn::Lanes(d);
  const VecF64 min = hn::Set(d, grid.min);
  const VecF64 scale = hn::Set(d, grid.bins / grid.range);
  const VecF64 last = hn::Set(d, grid.bins - 1);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF64 t = load_sum<kResidual>(input, residual, i);
    const VecF64 index = hn::Min(hn::Mul(hn::Sub(t, min), scale), last);
    hn::StoreU(hn::DemoteTo(U16(), hn::DemoteTo(I32(), index)), U16(), indices + i);
  }
  for (; i < n; ++i) {
    const double t = sum_at<kResidual>(input, residual, i);
    indices[i] = static_cast<std::uint16_t>(grid_index(grid, t));
  }
}

// grid_value() in vectors.
struct GridReader {
  VecF64 min;
  VecF64 range;
  VecF64 width;  // a power of two: multiplying is as exact as dividing

  HWY_INLINE explicit GridReader(const Grid& grid)
      : min(hn::Set(F64(), grid.min)),
        range(hn::Set(F64(), grid.range)),
        width(hn::Set(F64(), 1 / grid.bins)) {}

  HWY_INLINE VecF64 values(const std::uint16_t* indices) const {
    const auto whole = hn::PromoteTo(I32(), hn::LoadU(U16(), indices));
    const VecF64 middle = hn::Add(hn::PromoteTo(F64(), whole), hn::Set(F64(), 0.5));
    return hn::Add(min, hn::Mul(range, hn::Mul(middle, width)));
  }
};

constexpr double kLargestFloat = std::numeric_limits<float>::max();

HWY_INLINE hn::Vec<F32> to_floats(VecF64 values) {
  const VecF64 largest = hn::Set(F64(), kLargestFloat);
  return hn::DemoteTo(F32(), hn::Max(hn::Min(values, largest), hn::Neg(largest)));
}
HWY_INLINE float to_float(double value) {
  if (value > kLargestFloat) return std::numeric_limits<float>::max();
  return value < -kLargestFloat ? -std::numeric_limits<float>::max() : static_cast<float>(value);
}

void read_f32(const Grid& grid, const std::uint16_t* HWY_RESTRICT indices, std::size_t n,
              float* HWY_RESTRICT out) {
  const GridReader reader(grid);
  const std::size_t lanes = hn::Lanes(F64());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(to_floats(reader.values(indices + i)), F32(), out + i);
  }
  for (; i < n; ++i) out[i] = to_float(grid_value(grid, indices[i]));
}

void add_f32(const Grid& grid, const std::uint16_t* HWY_RESTRICT indices, std::size_t n,
             float weight, float* HWY_RESTRICT target) {
  const GridReader reader(grid);
  const auto by = hn::Set(F32(), weight);
  const std::size_t lanes = hn::Lanes(F64());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto product = hn::Mul(by, to_floats(reader.values(indices + i)));
    hn::StoreU(hn::Add(hn::LoadU(F32(), target + i), product), F32(), target + i);
  }
  for (; i < n; ++i) target[i] += weight * to_float(grid_value(grid, indices[i]));
}

void read_f64(const Grid& grid, const std::uint16_t* HWY_RESTRICT indices, std::size_t n,
              double* HWY_RESTRICT out) {
  const GridReader reader(grid);
  const std::size_t lanes = hn::Lanes(F64());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(reader.values(indices + i), F64(), out + i);
  for (; i < n; ++i) out[i] = grid_value(grid, indices[i]);
}

// The value that a receiver gets, as doubles: rounded to float, or not.
HWY_INLINE VecF64 received(const float*, VecF64 values) {
  return hn::PromoteTo(F64(), to_floats(values));
}
HWY_INLINE VecF64 received(const double*, VecF64 values) { return values; }
HWY_INLINE double received(const float*, double value) { return to_float(value); }
HWY_INLINE double received(const double*, double value) { return value; }

// The difference of two floats as doubles, rounded to float, is their difference as floats: a
// double has more than twice the digits.
template <typename T>
void keep_rest_of(const T* HWY_RESTRICT input, float* HWY_RESTRICT residual, std::size_t n,
                  const Grid& grid, const std::uint16_t* HWY_RESTRICT indices) {
  const GridReader reader(grid);
  const std::size_t lanes = hn::Lanes(F64());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF64 value = received(input, reader.values(indices + i));
    const VecF64 rest = hn::Sub(load_sum<true>(input, residual, i), value);
    hn::StoreU(to_floats(rest), F32(), residual + i);
  }
  for (; i < n; ++i) {
    const double value = received(input, grid_value(grid, indices[i]));
    residual[i] = to_float(sum_at<true>(input, residual, i) - value);
  }
}

// Overloads do not dispatch: a name for each type.
Extremes extremes_f32(const float* input, const float* residual, std::size_t n) {
  return residual != nullptr ? extremes_of<true>(input, residual, n)
                             : extremes_of<false>(input, residual, n);
}
Extremes extremes_f64(const double* input, const float* residual, std::size_t n) {
  return residual != nullptr ? extremes_of<true>(input, residual, n)
                             : extremes_of<false>(input, residual, n);
}
void quantize_f32(const float* input, const float* residual, std::size_t n, const Grid& grid,
                  std::uint16_t* indices) {
  return residual != nullptr ? quantize_of<true>(input, residual, n, grid, indices)
                             : quantize_of<false>(input, residual, n, grid, indices);
}
void quantize_f64(const double* input, const float* residual, std::size_t n, const Grid& grid,
                  std::uint16_t* indices) {
  return residual != nullptr ? quantize_of<true>(input, residual, n, grid, indices)
                             : quantize_of<false>(input, residual, n, grid, indices);
}
void keep_rest_f32(const float* input, float* residual, std::size_t n, const Grid& grid,
                   const std::uint16_t* indices) {
  keep_rest_of(input, residual, n, grid, indices);
}
void keep_rest_f64(const double* input, float* residual, std::size_t n, const Grid& grid,
                   const std::uint16_t* indices) {
  keep_rest_of(input, residual, n, grid, indices);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(extremes_f32);
HWY_EXPORT(extremes_f64);
HWY_EXPORT(quantize_f32);
HWY_EXPORT(quantize_f64);
HWY_EXPORT(read_f32);
HWY_EXPORT(read_f64);
HWY_EXPORT(add_f32);
HWY_EXPORT(keep_rest_f32);
HWY_EXPORT(keep_rest_f64);

Extremes find_extremes(const float* input, const float* residual, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(extremes_f32)(input, residual, n);
}
Extremes find_extremes(const double* input, const float* residual, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(extremes_f64)(input, residual, n);
}
void quantize_to_grid(const float* input, const float* residual, std::size_t n, const Grid& grid,
                      std::uint16_t* indices) {
  HWY_DYNAMIC_DISPATCH(quantize_f32)(input, residual, n, grid, indices);
}
void quantize_to_grid(const double* input, const float* residual, std::size_t n, const Grid& grid,
                      std::uint16_t* indices) {
  HWY_DYNAMIC_DISPATCH(quantize_f64)(input, residual, n, grid, indices);
}
void read_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(read_f32)(grid, indices, n, out);
}
void read_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(read_f64)(grid, indices, n, out);
}
void add_grid(const Grid& grid, const std::uint16_t* indices, std::size_t n, float weight,
              float* target) {
  HWY_DYNAMIC_DISPATCH(add_f32)(grid, indices, n, weight, target);
}
void keep_grid_rest(const float* input, float* residual, std::size_t n, const Grid& grid,
                    const std::uint16_t* indices) {
  HWY_DYNAMIC_DISPATCH(keep_rest_f32)(input, residual, n, grid, indices);
}
void keep_grid_rest(const double* input, float* residual, std::size_t n, const Grid& grid,
                    const std::uint16_t* indices) {
  HWY_DYNAMIC_DISPATCH(keep_rest_f64)(input, residual, n, grid, indices);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
