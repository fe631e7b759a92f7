#include "stochastic_ternary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stochastic_ternary.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "lane_masks_inl.h"
#include "scaling.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace {

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using VecF = hn::Vec<F>;

constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kLineElems = 64 / sizeof(float);
// Of a random word the upper 24 bits count, in units of 2^-24.
constexpr int kUnusedBits = 8;
constexpr float kUnit = 0x1p-24F;

// u * (s f(s)) < min(|T|, limit) f(s), with what does not depend on the element multiplied out:
// powers of two change no rounding.
struct Draw {
  explicit Draw(const StochasticScale& scale)
      : scaler(hn::Set(F(), scale.scaler)),
        factor(hn::Set(F(), scaling_factor(scale.scaler))),
        limit(hn::Set(F(), scale.limit * scaling_factor(scale.scaler))),
        unit(hn::Set(F(), scale.scaler * scaling_factor(scale.scaler) * kUnit)) {}

  HWY_INLINE hn::Mask<F> operator()(VecF t, const std::uint32_t* words) const {
    const hn::Repartition<std::uint32_t, F> u32;
    const auto drawn = hn::BitCast(I(), hn::ShiftRight<kUnusedBits>(hn::LoadU(u32, words)));
    const VecF bar = hn::Mul(hn::ConvertTo(F(), drawn), unit);
    return hn::Lt(bar, hn::Min(hn::Mul(hn::Abs(t), factor), limit));
  }

  VecF scaler;
  VecF factor;
  VecF limit;
  VecF unit;
};

// 64 values. Returns which of them have a digit.
template <bool kResidual>
HWY_INLINE std::uint64_t quantize_word(const float* HWY_RESTRICT input,
                                       float* HWY_RESTRICT residual, const Draw& draw,
                                       const std::uint32_t* HWY_RESTRICT words, std::uint64_t* sent,
                                       std::uint64_t* negative) {
  const F f;
  std::uint64_t sent_bits = 0;
  std::uint64_t negative_bits = 0;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kWordBits; i += kLanes) {
    VecF t = hn::LoadU(f, input + i);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(f, residual + i));
    const auto is_sent = draw(t, words + i);
    sent_bits |= bits_of(f, is_sent) << i;
    negative_bits |= bits_of(f, hn::Lt(t, hn::Zero(f))) << i;
    if constexpr (kResidual) {
      const VecF rest = hn::Sub(t, hn::CopySignToAbs(draw.scaler, t));
      hn::StoreU(hn::IfThenElse(is_sent, rest, t), f, residual + i);
    }
  }
  *sent = sent_bits;
  *negative = negative_bits;
  return sent_bits;
}

// Fewer than 64 values, zeros behind them: a zero is never sent.
template <bool kResidual>
std::uint64_t quantize_rest(const float* input, float* residual, std::size_t n, const Draw& draw,
                            const std::uint32_t* words, std::uint64_t* sent,
                            std::uint64_t* negative) {
  float inputs[kWordBits] = {};
  float residuals[kWordBits] = {};
  std::uint32_t drawn[kWordBits] = {};
  std::copy_n(input, n, inputs);
  std::copy_n(words, n, drawn);
  if constexpr (kResidual) std::copy_n(residual, n, residuals);
  const std::uint64_t any =
      quantize_word<kResidual>(inputs, residuals, draw, drawn, sent, negative);
  if constexpr (kResidual) std::copy_n(residuals, n, residual);
  return any;
}

template <bool kResidual>
bool quantize(const float* input, float* residual, std::size_t n, const Draw& draw,
              const std::uint32_t* words, std::uint64_t* sent, std::uint64_t* negative) {
  std::uint64_t any = 0;
  std::size_t i = 0;
  for (; i + kWordBits <= n; i += kWordBits) {
    float* rest = kResidual ? residual + i : nullptr;
    for (std::size_t line = 0; line < kWordBits; line += kLineElems) {
      prefetch(input + i + line);
      if constexpr (kResidual) prefetch(rest + line);
    }
    any |= quantize_word<kResidual>(input + i, rest, draw, words + i, sent++, negative++);
  }
  if (i < n) {
    float* rest = kResidual ? residual + i : nullptr;
    any |= quantize_rest<kResidual>(input + i, rest, n - i, draw, words + i, sent, negative);
  }
  return any != 0;
}

}  // namespace

bool quantize_stochastic(const float* input, float* residual, std::size_t n,
                         const StochasticScale& scale, const std::uint32_t* words,
                         std::uint64_t* sent, std::uint64_t* negative) {
  const Draw draw(scale);
  return residual != nullptr ? quantize<true>(input, residual, n, draw, words, sent, negative)
                             : quantize<false>(input, residual, n, draw, words, sent, negative);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(quantize_stochastic);

bool quantize_stochastic(const float* input, float* residual, std::size_t n,
                         const StochasticScale& scale, const std::uint32_t* words,
                         std::uint64_t* sent, std::uint64_t* negative) {
  return HWY_DYNAMIC_DISPATCH(quantize_stochastic)(input, residual, n, scale, words, sent,
                                                   negative);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
