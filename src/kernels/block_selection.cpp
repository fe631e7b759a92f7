#include "block_selection.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "block_selection.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>

#include "lane_masks_inl.h"
#include "surveys.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using D = hn::ScalableTag<double>;
using Half = hn::Rebind<float, D>;
using F = hn::ScalableTag<float>;
using VecD = hn::Vec<D>;
using VecF = hn::Vec<F>;

constexpr std::size_t kDoubles = hn::MaxLanes(D());
constexpr std::size_t kLanes = hn::MaxLanes(F());

template <bool kResidual>
double select_block_of(const float* HWY_RESTRICT input, const float* HWY_RESTRICT residual,
                       std::size_t n, float limit, std::uint64_t* selected) {
  const Half half;
  const auto at_least = hn::Set(half, limit);
  VecD sums[kSumLanes / kDoubles];
  for (VecD& lanes : sums) lanes = hn::Zero(D());
  const std::size_t whole = n / kWordBits * kWordBits;
  for (std::size_t i = 0; i < whole; i += kWordBits) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < kWordBits; j += kDoubles) {
      const auto magnitude = hn::Abs(load_sum<kResidual>(half, input, residual, i + j));
      const auto reaches = hn::Ge(magnitude, at_least);
      VecD& lanes = sums[j % kSumLanes / kDoubles];
      lanes = hn::Add(lanes, hn::PromoteTo(D(), hn::IfThenElseZero(reaches, magnitude)));
      word |= bits_of(half, reaches) << j;
    }
    selected[i / kWordBits] = word;
  }
  double lanes[kSumLanes];
  for (std::size_t lane = 0; lane < kSumLanes; lane += kDoubles) {
    hn::StoreU(sums[lane / kDoubles], D(), lanes + lane);
  }
  if (whole < n) {
    std::uint64_t word = 0;
    for (std::size_t i = whole; i < n; ++i) {
      const float magnitude = std::fabs(sum_at(input, kResidual ? residual : nullptr, i));
      if (!(magnitude >= limit)) continue;
      lanes[i % kSumLanes] += double{magnitude};
      word |= std::uint64_t{1} << (i - whole);
    }
    selected[whole / kWordBits] = word;
  }
  return fold_lanes(lanes);
}

double select_block(const float* input, const float* residual, std::size_t n, float limit,
                    std::uint64_t* selected) {
  return residual != nullptr ? select_block_of<true>(input, residual, n, limit, selected)
                             : select_block_of<false>(input, nullptr, n, limit, selected);
}

template <bool kResidual>
void settle_block_of(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual, std::size_t n,
                     float value, const std::uint64_t* selected, std::uint64_t* negative) {
  const F f;
  const VecF magnitude = hn::Set(f, value);
  const VecF zero = hn::Zero(f);
  const std::size_t whole = n / kWordBits * kWordBits;
  for (std::size_t i = 0; i < whole; i += kWordBits) {
    const std::uint64_t word = selected[i / kWordBits];
    std::uint64_t signs = 0;
    for (std::size_t j = 0; j < kWordBits; j += kLanes) {
      const VecF t = load_sum<kResidual>(f, input, residual, i + j);
      signs |= bits_of(f, hn::Lt(t, zero)) << j;
      if constexpr (kResidual) {
        const VecF rest = hn::Sub(t, hn::CopySignToAbs(magnitude, t));
        hn::StoreU(hn::IfThenElse(mask_of(f, word >> j), rest, t), f, residual + i + j);
      }
    }
    negative[i / kWordBits] = signs;
  }
  if (whole == n) return;
  std::uint64_t signs = 0;
  for (std::size_t i = whole; i < n; ++i) {
    const float t = sum_at(input, kResidual ? residual : nullptr, i);
    signs |= std::uint64_t{t < 0} << (i - whole);
    if constexpr (kResidual) {
      const bool sent = (selected[i / kWordBits] >> (i - whole) & 1) != 0;
      residual[i] = sent ? t - std::copysign(value, t) : t;
    }
  }
  negative[whole / kWordBits] = signs;
}

void settle_block(const float* input, float* residual, std::size_t n, float value,
                  const std::uint64_t* selected, std::uint64_t* negative) {
  if (residual != nullptr) {
    return settle_block_of<true>(input, residual, n, value, selected, negative);
  }
  settle_block_of<false>(input, nullptr, n, value, selected, negative);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(select_block);
HWY_EXPORT(settle_block);

double select_block(const float* input, const float* residual, std::size_t n, float limit,
                    std::uint64_t* selected) {
  return HWY_DYNAMIC_DISPATCH(select_block)(input, residual, n, limit, selected);
}
void settle_block(const float* input, float* residual, std::size_t n, float value,
                  const std::uint64_t* selected, std::uint64_t* negative) {
  HWY_DYNAMIC_DISPATCH(settle_block)(input, residual, n, value, selected, negative);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
