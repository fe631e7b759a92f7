#include "sign_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sign_bits.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

#include "lane_masks_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using F = hn::ScalableTag<float>;
using VecF = hn::Vec<F>;
using MaskF = hn::Mask<F>;

constexpr std::size_t kLanes = hn::MaxLanes(F());

// 64 values.
template <bool kResidual>
HWY_INLINE std::uint64_t pack_word(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                                   VecF plus, VecF minus) {
  const F f;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < kWordBits; i += kLanes) {
    VecF t = hn::LoadU(f, input + i);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(f, residual + i));
    const MaskF negative = hn::Lt(t, hn::Zero(f));
    store_mask(f, negative, &word, i);
    if constexpr (kResidual) {
      hn::StoreU(hn::Sub(t, hn::IfThenElse(negative, minus, plus)), f, residual + i);
    }
  }
  return word;
}

// 64 values or fewer, one at a time: the meaning that the vector code accelerates.
template <bool kResidual>
HWY_INLINE std::uint64_t pack_word_scalar(const float* input, float* residual, std::size_t n,
                                          const SignValues& values) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float t = kResidual ? input[i] + residual[i] : input[i];
    word |= std::uint64_t{t < 0} << i;
    if constexpr (kResidual) residual[i] = t - (t < 0 ? values.minus : values.plus);
  }
  return word;
}

template <bool kResidual>
void pack_signs_of(const float* input, float* residual, std::size_t n, const SignValues& values,
                   std::uint8_t* bits) {
  const VecF plus = hn::Set(F(), values.plus);
  const VecF minus = hn::Set(F(), values.minus);
  std::size_t i = 0;
  for (; i + kWordBits <= n; i += kWordBits) {
    const std::uint64_t word =
        pack_word<kResidual>(input + i, kResidual ? residual + i : nullptr, plus, minus);
    std::memcpy(bits + i / 8, &word, sizeof(word));
  }
  const std::uint64_t word =
      pack_word_scalar<kResidual>(input + i, kResidual ? residual + i : nullptr, n - i, values);
  std::memcpy(bits + i / 8, &word, (n - i + 7) / 8);
}

void pack_signs(const float* input, float* residual, std::size_t n, const SignValues& values,
                std::uint8_t* bits) {
  return residual != nullptr ? pack_signs_of<true>(input, residual, n, values, bits)
                             : pack_signs_of<false>(input, residual, n, values, bits);
}

template <bool kAdd>
HWY_INLINE void use_signs(const std::uint8_t* HWY_RESTRICT bits, std::size_t n,
                          const SignValues& values, float* HWY_RESTRICT out) {
  const F f;
  const VecF plus = hn::Set(f, values.plus);
  const VecF minus = hn::Set(f, values.minus);
  std::size_t i = 0;
  for (; i + kWordBits <= n; i += kWordBits) {
    std::uint64_t word;
    std::memcpy(&word, bits + i / 8, sizeof(word));
    for (std::size_t k = 0; k < kWordBits; k += kLanes) {
      VecF value = hn::IfThenElse(mask_of(f, word >> k), minus, plus);
      if constexpr (kAdd) value = hn::Add(hn::LoadU(f, out + i + k), value);
      hn::StoreU(value, f, out + i + k);
    }
  }
  for (; i < n; ++i) {
    const float value = (bits[i / 8] >> i % 8 & 1) != 0 ? values.minus : values.plus;
    out[i] = kAdd ? out[i] + value : value;
  }
}

void unpack_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out) {
  use_signs<false>(bits, n, values, out);
}
void add_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out) {
  use_signs<true>(bits, n, values, out);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(pack_signs);
HWY_EXPORT(unpack_signs);
HWY_EXPORT(add_signs);

void pack_signs(const float* input, float* residual, std::size_t n, const SignValues& values,
                std::uint8_t* bits) {
  HWY_DYNAMIC_DISPATCH(pack_signs)(input, residual, n, values, bits);
}
void unpack_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out) {
  HWY_DYNAMIC_DISPATCH(unpack_signs)(bits, n, values, out);
}
void add_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out) {
  HWY_DYNAMIC_DISPATCH(add_signs)(bits, n, values, out);
}

}  // namespace tersewire::kernels
#endif
