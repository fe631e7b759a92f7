#include "level_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "level_codes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What is done with as many values as D has lanes; with one, that is the tail.
template <class D>
struct Levels {
  using Int = hn::RebindToSigned<D>;
  using Vec = hn::Vec<D>;
  using VecInt = hn::Vec<Int>;

  static HWY_INLINE VecInt load_codes(const std::uint32_t* codes) {
    return hn::LoadU(Int(), reinterpret_cast<const std::int32_t*>(codes));
  }

  // From [0, 1), in steps of 2^-24.
  static HWY_INLINE Vec uniform(const std::uint32_t* words) {
    const hn::RebindToUnsigned<D> d;
    const auto word = hn::ShiftRight<8>(hn::LoadU(d, words));
    return hn::Mul(hn::ConvertTo(D(), hn::BitCast(Int(), word)), hn::Set(D(), 0x1p-24F));
  }

  static HWY_INLINE VecInt level(Vec t, const LevelScale& scale, const std::uint32_t* words) {
    const D d;
    const Int i;
    const Vec scaled =
        hn::Mul(hn::Mul(hn::Abs(t), hn::Set(d, scale.factor)), hn::Set(d, scale.quotient));
    const VecInt below = hn::ConvertTo(i, scaled);
    const auto up = hn::Lt(uniform(words), hn::Sub(scaled, hn::ConvertTo(d, below)));
    // A true lane is -1.
    const VecInt rounded = hn::Sub(below, hn::VecFromMask(i, hn::RebindMask(i, up)));
    const VecInt magnitude = hn::Min(rounded, hn::Set(i, scale.most));
    const VecInt sign = hn::BroadcastSignBit(hn::BitCast(i, t));
    return hn::Sub(hn::Xor(magnitude, sign), sign);
  }

  template <bool kResidual>
  static HWY_INLINE void quantize(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                                  const LevelScale& scale, const std::uint32_t* HWY_RESTRICT words,
                                  std::uint32_t* HWY_RESTRICT codes) {
    const D d;
    const Int i;
    Vec t = hn::LoadU(d, input);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(d, residual));
    const VecInt found = level(t, scale, words);
    hn::StoreU(hn::Add(found, hn::Set(i, scale.most)), i, reinterpret_cast<std::int32_t*>(codes));
    if constexpr (kResidual) {
      const Vec decoded = hn::Mul(hn::ConvertTo(d, found), hn::Set(d, scale.step));
      hn::StoreU(hn::Sub(t, decoded), d, residual);
    }
  }

  static HWY_INLINE void values(const std::uint32_t* codes, const LevelScale& scale, float* out) {
    const D d;
    const VecInt found = hn::Sub(load_codes(codes), hn::Set(Int(), scale.most));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, found), hn::Set(d, scale.step)), d, out);
  }

  static HWY_INLINE void add(const std::uint32_t* HWY_RESTRICT codes, const LevelScale& scale,
                             float weight, float* HWY_RESTRICT out) {
    const D d;
    const Vec level = hn::ConvertTo(d, hn::Sub(load_codes(codes), hn::Set(Int(), scale.most)));
    const Vec weighted = hn::Mul(hn::Set(d, weight), hn::Mul(level, hn::Set(d, scale.step)));
    // Adding -0 changes nothing, not even a -0.
    const auto untouched = hn::Eq(level, hn::Zero(d));
    const Vec added = hn::IfThenElse(untouched, hn::Set(d, -0.0F), weighted);
    hn::StoreU(hn::Add(hn::LoadU(d, out), added), d, out);
  }
};

using Whole = Levels<hn::ScalableTag<float>>;
using Tail = Levels<hn::CappedTag<float, 1>>;
constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());

template <bool kResidual>
void quantize_levels_of(const float* input, float* residual, std::size_t n, const LevelScale& scale,
                        const std::uint32_t* words, std::uint32_t* codes) {
  const auto at = [&](std::size_t i) { return kResidual ? residual + i : nullptr; };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Whole::quantize<kResidual>(input + i, at(i), scale, words + i, codes + i);
  }
  for (; i < n; ++i) Tail::quantize<kResidual>(input + i, at(i), scale, words + i, codes + i);
}

void quantize_levels(const float* input, float* residual, std::size_t n, const LevelScale& scale,
                     const std::uint32_t* words, std::uint32_t* codes) {
  return residual != nullptr ? quantize_levels_of<true>(input, residual, n, scale, words, codes)
                             : quantize_levels_of<false>(input, residual, n, scale, words, codes);
}

std::uint32_t largest_code(const std::uint32_t* codes, std::size_t n) {
  const hn::ScalableTag<std::uint32_t> d;
  auto largest = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = hn::Max(largest, hn::LoadU(d, codes + i));
  std::uint32_t found = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < n; ++i) found = codes[i] > found ? codes[i] : found;
  return found;
}

void level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale, float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Whole::values(codes + i, scale, out + i);
  for (; i < n; ++i) Tail::values(codes + i, scale, out + i);
}

void add_level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale,
                      float weight, float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Whole::add(codes + i, scale, weight, out + i);
  for (; i < n; ++i) Tail::add(codes + i, scale, weight, out + i);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(quantize_levels);
HWY_EXPORT(largest_code);
HWY_EXPORT(level_values);
HWY_EXPORT(add_level_values);

void quantize_levels(const float* input, float* residual, std::size_t n, const LevelScale& scale,
                     const std::uint32_t* words, std::uint32_t* codes) {
  HWY_DYNAMIC_DISPATCH(quantize_levels)(input, residual, n, scale, words, codes);
}
std::uint32_t largest_code(const std::uint32_t* codes, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(largest_code)(codes, n);
}
void level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale, float* out) {
  HWY_DYNAMIC_DISPATCH(level_values)(codes, n, scale, out);
}
void add_level_values(const std::uint32_t* codes, std::size_t n, const LevelScale& scale,
                      float weight, float* out) {
  HWY_DYNAMIC_DISPATCH(add_level_values)(codes, n, scale, weight, out);
}

}  // namespace tersewire::kernels
#endif
