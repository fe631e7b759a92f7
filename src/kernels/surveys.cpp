#include "surveys.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "surveys.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <bit>
#include <type_traits>

#include "lane_masks_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using D = hn::ScalableTag<double>;
using One = hn::CappedTag<double, 1>;
using F = hn::Rebind<float, D>;
using I = hn::Rebind<std::int32_t, D>;
using VecD = hn::Vec<D>;
using VecI = hn::Vec<I>;
// Magnitudes need no double.
using Whole = hn::CappedTag<float, kSumLanes>;
using WholeI = hn::RebindToSigned<Whole>;

constexpr std::size_t kLanes = hn::MaxLanes(D());

// What is added for each value t of T. Written for vectors of any length: one lane is the tail.
struct Values {
  template <class V>
  HWY_INLINE void operator()(V t, V& first, V&) const {
    first = hn::Add(first, t);
  }
};

struct Moments {
  double shift;

  template <class V>
  HWY_INLINE void operator()(V t, V& first, V& second) const {
    const V from_shift = hn::Sub(t, hn::Set(hn::DFromV<V>(), shift));
    first = hn::Add(first, from_shift);
    second = hn::Add(second, hn::Mul(from_shift, from_shift));
  }
};

struct Squares {
  template <class V>
  HWY_INLINE void operator()(V t, V& first, V&) const {
    first = hn::Add(first, hn::Mul(t, t));
  }
};

struct Magnitudes {
  template <class V>
  HWY_INLINE void operator()(V t, V& first, V&) const {
    first = hn::Add(first, hn::Abs(t));
  }
};

struct Signs {
  template <class V>
  HWY_INLINE void operator()(V t, V& first, V& second) const {
    const V zero = hn::Zero(hn::DFromV<V>());
    first = hn::Add(first, hn::Max(t, zero));
    second = hn::Add(second, hn::Min(t, zero));
  }
};

// All lanes of both sums, and what is found on the way.
struct Totals {
  VecD first[kSumLanes / kLanes];
  VecD second[kSumLanes / kLanes];
  hn::Vec<WholeI> largest = hn::Zero(WholeI());
  VecI negative = hn::Zero(I());  // -1 for each value below 0, where that is asked for

  HWY_INLINE Totals() {
    for (VecD& lanes : first) lanes = hn::Zero(D());
    for (VecD& lanes : second) lanes = hn::Zero(D());
  }
};

template <bool kResidual, class D>
HWY_INLINE hn::Vec<D> load(D d, const float* input, const float* residual) {
  const auto value = hn::LoadU(d, input);
  if constexpr (kResidual) return hn::Add(value, hn::LoadU(d, residual));
  return value;
}

// Adds lanes kFirst to 15 of 16 values.
template <bool kResidual, std::size_t kFirst = 0, class Term>
HWY_INLINE void add_values(const Term& term, const float* input, const float* residual,
                           Totals& totals) {
  constexpr std::size_t kAt = kFirst / kLanes;
  const auto t = load<kResidual>(F(), input + kFirst, residual + kFirst);
  if constexpr (std::is_same_v<Term, Signs>) {
    const auto below = hn::RebindMask(I(), hn::Lt(t, hn::Zero(F())));
    totals.negative = hn::Add(totals.negative, hn::VecFromMask(I(), below));
  }
  term(hn::PromoteTo(D(), t), totals.first[kAt], totals.second[kAt]);
  if constexpr (kFirst + kLanes < kSumLanes) {
    add_values<kResidual, kFirst + kLanes>(term, input, residual, totals);
  }
}

template <bool kResidual>
HWY_INLINE void add_magnitudes(const float* input, const float* residual, Totals& totals) {
  const Whole d;
  for (std::size_t i = 0; i < kSumLanes; i += hn::Lanes(d)) {
    const auto magnitude = hn::Abs(load<kResidual>(d, input + i, residual + i));
    totals.largest = hn::Max(totals.largest, hn::BitCast(WholeI(), magnitude));
  }
}

// Adds one value to its lane.
template <class Term>
HWY_INLINE void add_value(const Term& term, float t, double& first, double& second) {
  auto first_lane = hn::Set(One(), first);
  auto second_lane = hn::Set(One(), second);
  term(hn::Set(One(), double{t}), first_lane, second_lane);
  first = hn::GetLane(first_lane);
  second = hn::GetLane(second_lane);
}

template <bool kResidual, class Term>
BlockSurvey survey_of(const Term& term, const float* HWY_RESTRICT input,
                      const float* HWY_RESTRICT residual, std::size_t n) {
  Totals totals;
  std::size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    // 16 values are a line.
    prefetch_far(input + i);
    if constexpr (kResidual) prefetch_far(residual + i);
    add_values<kResidual>(term, input + i, residual + i, totals);
    add_magnitudes<kResidual>(input + i, residual + i, totals);
  }
  double first[kSumLanes];
  double second[kSumLanes];
  for (std::size_t lane = 0; lane < kSumLanes; lane += kLanes) {
    hn::StoreU(totals.first[lane / kLanes], D(), first + lane);
    hn::StoreU(totals.second[lane / kLanes], D(), second + lane);
  }
  const auto largest = hn::GetLane(hn::MaxOfLanes(WholeI(), totals.largest));
  const auto negative = -hn::GetLane(hn::SumOfLanes(I(), totals.negative));
  BlockSurvey survey{.largest_bits = static_cast<std::uint32_t>(largest),
                     .count = static_cast<std::uint32_t>(negative),
                     .first = 0,
                     .second = 0};
  for (; i < n; ++i) {
    const float t = kResidual ? input[i] + residual[i] : input[i];
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(t) & 0x7FFFFFFFu;
    survey.largest_bits = bits > survey.largest_bits ? bits : survey.largest_bits;
    survey.count += std::is_same_v<Term, Signs> && t < 0 ? 1 : 0;
    add_value(term, t, first[i % kSumLanes], second[i % kSumLanes]);
  }
  survey.first = fold_lanes(first);
  survey.second = fold_lanes(second);
  return survey;
}

template <class Term>
BlockSurvey survey(const Term& term, const float* input, const float* residual, std::size_t n) {
  return residual != nullptr ? survey_of<true>(term, input, residual, n)
                             : survey_of<false>(term, input, input, n);
}

BlockSurvey survey_moments(const float* input, const float* residual, std::size_t n, float shift) {
  return survey(Moments{shift}, input, residual, n);
}
BlockSurvey survey_squares(const float* input, const float* residual, std::size_t n) {
  return survey(Squares{}, input, residual, n);
}
BlockSurvey survey_magnitudes(const float* input, const float* residual, std::size_t n) {
  return survey(Magnitudes{}, input, residual, n);
}
BlockSurvey survey_signs(const float* input, const float* residual, std::size_t n) {
  return survey(Signs{}, input, residual, n);
}
double sum_block(const float* values, std::size_t n) {
  return survey(Values{}, values, nullptr, n).first;
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(survey_moments);
HWY_EXPORT(survey_squares);
HWY_EXPORT(survey_magnitudes);
HWY_EXPORT(survey_signs);
HWY_EXPORT(sum_block);

BlockSurvey survey_moments(const float* input, const float* residual, std::size_t n, float shift) {
  return HWY_DYNAMIC_DISPATCH(survey_moments)(input, residual, n, shift);
}
BlockSurvey survey_squares(const float* input, const float* residual, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(survey_squares)(input, residual, n);
}
BlockSurvey survey_magnitudes(const float* input, const float* residual, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(survey_magnitudes)(input, residual, n);
}
BlockSurvey survey_signs(const float* input, const float* residual, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(survey_signs)(input, residual, n);
}
double sum_block(const float* values, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_block)(values, n);
}

}  // namespace tersewire::kernels
#endif
