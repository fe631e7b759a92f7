#include "block_selection.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "block_selection.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <bit>
#include <cmath>

#include "lane_masks_inl.h"
#include "surveys.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using D = hn::ScalableTag<double>;
using Half = hn::Rebind<float, D>;
using F = hn::ScalableTag<float>;
using Bits = hn::RebindToSigned<Half>;
using VecD = hn::Vec<D>;
using VecHalf = hn::Vec<Half>;
using VecF = hn::Vec<F>;

constexpr std::size_t kDoubles = hn::MaxLanes(D());
constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kLineElems = 64 / sizeof(float);

// T from element i on: a vector, and one value.
template <bool kResidual, class Any>
HWY_INLINE hn::Vec<Any> lead_and_sum(Any d, const float* input, const float* residual,
                                     hn::Vec<Any> lead, std::size_t i) {
  const auto led = hn::Mul(hn::LoadU(d, input + i), lead);
  if constexpr (kResidual) return hn::Add(led, hn::LoadU(d, residual + i));
  return led;
}
template <bool kResidual>
HWY_INLINE float lead_and_sum_at(const float* input, const float* residual, float lead,
                                 std::size_t i) {
  const float led = input[i] * lead;
  if constexpr (kResidual) return led + residual[i];
  return led;
}

// Sums of 16 lanes, in as many vectors as they take.
struct Sums {
  VecD of[kSumLanes / kDoubles];

  HWY_INLINE Sums() {
    for (VecD& lanes : of) lanes = hn::Zero(D());
  }
  HWY_INLINE void store(double* lanes) const {
    for (std::size_t lane = 0; lane < kSumLanes; lane += kDoubles) {
      hn::StoreU(of[lane / kDoubles], D(), lanes + lane);
    }
  }
};

// What a survey of a block comes to.
struct Surveyed {
  Sums sums;
  hn::Vec<Bits> largest;

  HWY_INLINE Surveyed() : largest(hn::Zero(Bits())) {}
};

// Lanes kFirst to 15 of 16 values.
template <bool kResidual, std::size_t kFirst = 0>
HWY_INLINE void survey_values(const float* input, const float* residual, VecHalf lead, float* t,
                              Surveyed& found) {
  const VecHalf value = lead_and_sum<kResidual>(Half(), input, residual, lead, kFirst);
  hn::StoreU(value, Half(), t + kFirst);
  const VecHalf magnitude = hn::Abs(value);
  found.largest = hn::Max(found.largest, hn::BitCast(Bits(), magnitude));
  VecD& lanes = found.sums.of[kFirst / kDoubles];
  lanes = hn::Add(lanes, hn::PromoteTo(D(), magnitude));
  if constexpr (kFirst + kDoubles < kSumLanes) {
    survey_values<kResidual, kFirst + kDoubles>(input, residual, lead, t, found);
  }
}

template <bool kResidual>
BlockSurvey survey_block_of(const float* HWY_RESTRICT input, const float* HWY_RESTRICT residual,
                            std::size_t n, float lead, float* HWY_RESTRICT t) {
  const VecHalf leads = hn::Set(Half(), lead);
  Surveyed found;
  std::size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    // 16 values are a line.
    prefetch_far(input + i);
    if constexpr (kResidual) prefetch_far(residual + i);
    survey_values<kResidual>(input + i, kResidual ? residual + i : nullptr, leads, t + i, found);
  }
  double lanes[kSumLanes];
  found.sums.store(lanes);
  auto largest_bits =
      static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(Bits(), found.largest)));
  for (; i < n; ++i) {
    t[i] = lead_and_sum_at<kResidual>(input, residual, lead, i);
    const float magnitude = std::fabs(t[i]);
    const auto bits = std::bit_cast<std::uint32_t>(magnitude);
    largest_bits = bits > largest_bits ? bits : largest_bits;
    lanes[i % kSumLanes] += double{magnitude};
  }
  return {.largest_bits = largest_bits, .count = 0, .first = fold_lanes(lanes), .second = 0};
}

BlockSurvey survey_block(const float* input, const float* residual, std::size_t n, float lead,
                         float* t) {
  return residual != nullptr ? survey_block_of<true>(input, residual, n, lead, t)
                             : survey_block_of<false>(input, nullptr, n, lead, t);
}

// Lanes kFirst to 15 of 16 values; returns those that are selected as bits.
template <std::size_t kFirst = 0>
HWY_INLINE std::uint64_t select_values(const float* t, VecHalf at_least, Sums& sums) {
  const VecHalf magnitude = hn::Abs(hn::LoadU(Half(), t + kFirst));
  const auto reaches = hn::Ge(magnitude, at_least);
  VecD& lanes = sums.of[kFirst / kDoubles];
  lanes = hn::Add(lanes, hn::PromoteTo(D(), hn::IfThenElseZero(reaches, magnitude)));
  std::uint64_t bits = bits_of(Half(), reaches) << kFirst;
  if constexpr (kFirst + kDoubles < kSumLanes) {
    bits |= select_values<kFirst + kDoubles>(t, at_least, sums);
  }
  return bits;
}

BlockSurvey select_block(const float* t, std::size_t n, float limit, std::uint64_t* selected) {
  const VecHalf at_least = hn::Set(Half(), limit);
  Sums sums;
  int count = 0;
  const std::size_t whole = n / kWordBits * kWordBits;
  for (std::size_t i = 0; i < whole; i += kWordBits) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < kWordBits; j += kSumLanes) {
      word |= select_values(t + i + j, at_least, sums) << j;
    }
    selected[i / kWordBits] = word;
    count += std::popcount(word);
  }
  double lanes[kSumLanes];
  sums.store(lanes);
  if (whole < n) {
    std::uint64_t word = 0;
    for (std::size_t i = whole; i < n; ++i) {
      const float magnitude = std::fabs(t[i]);
      if (!(magnitude >= limit)) continue;
      lanes[i % kSumLanes] += double{magnitude};
      word |= std::uint64_t{1} << (i - whole);
    }
    selected[whole / kWordBits] = word;
    count += std::popcount(word);
  }
  return {.largest_bits = 0,
          .count = static_cast<std::uint32_t>(count),
          .first = fold_lanes(lanes),
          .second = 0};
}

// kBack: the lead is not 1.
template <bool kResidual, bool kBack>
void settle_block_of(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual, std::size_t n,
                     float lead, float value, const std::uint64_t* selected,
                     std::uint64_t* negative) {
  const F f;
  const VecF leads = hn::Set(f, lead);
  const VecF back = hn::Set(f, 1 - lead);
  const VecF magnitude = hn::Set(f, value);
  const VecF zero = hn::Zero(f);
  const std::size_t whole = n / kWordBits * kWordBits;
  for (std::size_t i = 0; i < whole; i += kWordBits) {
    const std::uint64_t word = selected[i / kWordBits];
    std::uint64_t signs = 0;
    for (std::size_t j = 0; j < kWordBits; j += kLineElems) {
      prefetch(input + i + j);
      if constexpr (kResidual) prefetch(residual + i + j);
    }
    for (std::size_t j = 0; j < kWordBits; j += kLanes) {
      const VecF t = lead_and_sum<kResidual>(f, input, residual, leads, i + j);
      signs |= bits_of(f, hn::Lt(t, zero)) << j;
      if constexpr (kResidual) {
        const VecF sent = hn::Sub(t, hn::CopySignToAbs(magnitude, t));
        VecF rest = hn::IfThenElse(mask_of(f, word >> j), sent, t);
        if constexpr (kBack) rest = hn::Add(rest, hn::Mul(hn::LoadU(f, input + i + j), back));
        hn::StoreU(rest, f, residual + i + j);
      }
    }
    negative[i / kWordBits] = signs;
  }
  if (whole == n) return;
  std::uint64_t signs = 0;
  for (std::size_t i = whole; i < n; ++i) {
    const float t = lead_and_sum_at<kResidual>(input, residual, lead, i);
    signs |= std::uint64_t{t < 0} << (i - whole);
    if constexpr (kResidual) {
      const bool sent = (selected[i / kWordBits] >> (i - whole) & 1) != 0;
      float rest = sent ? t - std::copysign(value, t) : t;
      if constexpr (kBack) rest += input[i] * (1 - lead);
      residual[i] = rest;
    }
  }
  negative[whole / kWordBits] = signs;
}

void settle_block(const float* input, float* residual, std::size_t n, float lead, float value,
                  const std::uint64_t* selected, std::uint64_t* negative) {
  const auto settle = residual == nullptr ? settle_block_of<false, false>
                      : lead == 1         ? settle_block_of<true, false>
                                          : settle_block_of<true, true>;
  settle(input, residual, n, lead, value, selected, negative);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(survey_block);
HWY_EXPORT(select_block);
HWY_EXPORT(settle_block);

BlockSurvey survey_block(const float* input, const float* residual, std::size_t n, float lead,
                         float* t) {
  return HWY_DYNAMIC_DISPATCH(survey_block)(input, residual, n, lead, t);
}
BlockSurvey select_block(const float* t, std::size_t n, float limit, std::uint64_t* selected) {
  return HWY_DYNAMIC_DISPATCH(select_block)(t, n, limit, selected);
}
void settle_block(const float* input, float* residual, std::size_t n, float lead, float value,
                  const std::uint64_t* selected, std::uint64_t* negative) {
  HWY_DYNAMIC_DISPATCH(settle_block)(input, residual, n, lead, value, selected, negative);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
