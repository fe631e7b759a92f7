#include "scaled_bytes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scaled_bytes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using One = hn::CappedTag<float, 1>;

// What is done with as many values as D has lanes; with one, that is the tail.
template <class D>
struct Bytes {
  using Int = hn::Rebind<std::int32_t, D>;
  using Byte = hn::Rebind<std::int8_t, D>;
  using Vec = hn::Vec<D>;

  template <bool kResidual>
  static HWY_INLINE void quantize(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                                  const ByteScale& scale, std::int8_t* HWY_RESTRICT out) {
    const D d;
    Vec t = hn::LoadU(d, input);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(d, residual));
    const Vec scaled = hn::Mul(hn::Mul(t, hn::Set(d, scale.factor)), hn::Set(d, scale.quotient));
    const auto nearest = hn::NearestInt(scaled);
    hn::StoreU(hn::DemoteTo(Byte(), nearest), Byte(), out);
    if constexpr (kResidual) {
      const Vec decoded = hn::Mul(hn::ConvertTo(d, nearest), hn::Set(d, scale.step));
      hn::StoreU(hn::Sub(t, decoded), d, residual);
    }
  }

  static HWY_INLINE Vec scaled(const std::int8_t* bytes, float step) {
    const auto wide = hn::PromoteTo(Int(), hn::LoadU(Byte(), bytes));
    return hn::Mul(hn::ConvertTo(D(), wide), hn::Set(D(), step));
  }

  static HWY_INLINE void add(const std::int8_t* HWY_RESTRICT bytes, float step, float weight,
                             float* HWY_RESTRICT out) {
    const D d;
    const Vec weighted = hn::Mul(hn::Set(d, weight), scaled(bytes, step));
    hn::StoreU(hn::Add(hn::LoadU(d, out), weighted), d, out);
  }
};

using Whole = Bytes<hn::ScalableTag<float>>;
using Tail = Bytes<One>;
constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());

template <bool kResidual>
void quantize_bytes_of(const float* input, float* residual, std::size_t n, const ByteScale& scale,
                       std::int8_t* out) {
  const auto at = [&](std::size_t i) { return kResidual ? residual + i : nullptr; };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Whole::quantize<kResidual>(input + i, at(i), scale, out + i);
  }
  for (; i < n; ++i) Tail::quantize<kResidual>(input + i, at(i), scale, out + i);
}

void quantize_bytes(const float* input, float* residual, std::size_t n, const ByteScale& scale,
                    std::int8_t* out) {
  return residual != nullptr ? quantize_bytes_of<true>(input, residual, n, scale, out)
                             : quantize_bytes_of<false>(input, residual, n, scale, out);
}

void scale_bytes(const std::int8_t* bytes, std::size_t n, float step, float* HWY_RESTRICT out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(Whole::scaled(bytes + i, step), hn::ScalableTag<float>(), out + i);
  }
  for (; i < n; ++i) hn::StoreU(Tail::scaled(bytes + i, step), One(), out + i);
}

void add_scaled_bytes(const std::int8_t* bytes, std::size_t n, float step, float weight,
                      float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Whole::add(bytes + i, step, weight, out + i);
  for (; i < n; ++i) Tail::add(bytes + i, step, weight, out + i);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(quantize_bytes);
HWY_EXPORT(scale_bytes);
HWY_EXPORT(add_scaled_bytes);

void quantize_bytes(const float* input, float* residual, std::size_t n, const ByteScale& scale,
                    std::int8_t* out) {
  HWY_DYNAMIC_DISPATCH(quantize_bytes)(input, residual, n, scale, out);
}
void scale_bytes(const std::int8_t* bytes, std::size_t n, float step, float* out) {
  HWY_DYNAMIC_DISPATCH(scale_bytes)(bytes, n, step, out);
}
void add_scaled_bytes(const std::int8_t* bytes, std::size_t n, float step, float weight,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(add_scaled_bytes)(bytes, n, step, weight, out);
}

}  // namespace tersewire::kernels
#endif
