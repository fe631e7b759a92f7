#include "narrow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "narrow.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using AsU = hn::Rebind<std::uint32_t, D>;
template <class D>
using AsI = hn::Rebind<std::int32_t, D>;

template <class D>
HWY_INLINE hn::Vec<AsU<D>> set_bits(D, std::uint32_t bits) {
  return hn::Set(AsU<D>(), bits);
}

// a < b for what is below 2^31.
template <class D, class V>
HWY_INLINE hn::Mask<AsU<D>> less(D, V a, V b) {
  const AsI<D> i;
  return hn::RebindMask(AsU<D>(), hn::Lt(hn::BitCast(i, a), hn::BitCast(i, b)));
}

// A format's narrow() makes its bits of a float's, and widen() a float's of them. In integers and
// exact sums of floats: what processors convert by themselves, and what Highway does where they do
// not, differ.

struct Fp16 {
  static constexpr unsigned kBits = 16;
  static constexpr std::uint32_t kLargest = 0x7BFF;
  static constexpr std::uint32_t kBiasDifference = 112U << 23;
  static constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14

  template <class D, class V>
  static HWY_INLINE V narrow(D d, V bits) {
    const V magnitude = hn::And(bits, set_bits(d, 0x7FFFFFFF));
    const V odd = hn::And(hn::ShiftRight<13>(magnitude), set_bits(d, 1));
    const V up = hn::Add(hn::Sub(magnitude, set_bits(d, kBiasDifference - 0xFFF)), odd);
    const V normal = hn::Min(hn::ShiftRight<13>(up), set_bits(d, kLargest));
    // Below 2^-14 halves are multiples of 2^-24, and so are floats from 1/2 on.
    const auto half = hn::Set(d, 0.5F);
    const V denormal = hn::Sub(hn::BitCast(AsU<D>(), hn::Add(hn::BitCast(d, magnitude), half)),
                               hn::BitCast(AsU<D>(), half));
    const auto is_denormal = less(d, magnitude, set_bits(d, kSmallestNormal));
    const V sign = hn::Sub(bits, magnitude);
    return hn::Or(hn::IfThenElse(is_denormal, denormal, normal), hn::ShiftRight<16>(sign));
  }

  template <class D, class V>
  static HWY_INLINE V widen(D d, V half) {
    const V moved = hn::ShiftLeft<13>(hn::And(half, set_bits(d, 0x7FFF)));
    const V sign = hn::ShiftLeft<16>(hn::And(half, set_bits(d, 0x8000)));
    const V normal = hn::Add(moved, set_bits(d, kBiasDifference));
    const V infinite = hn::Add(normal, set_bits(d, kBiasDifference));
    // A 1 is put before the mantissa, and taken off again as a float.
    const auto smallest = hn::BitCast(d, set_bits(d, kSmallestNormal));
    const auto with_one = hn::BitCast(d, hn::Add(moved, set_bits(d, kSmallestNormal)));
    const V denormal = hn::BitCast(AsU<D>(), hn::Sub(with_one, smallest));
    const auto is_denormal = less(d, moved, set_bits(d, 1U << 23));
    const auto is_finite = less(d, moved, set_bits(d, 31U << 23));
    const V magnitude =
        hn::IfThenElse(is_denormal, denormal, hn::IfThenElse(is_finite, normal, infinite));
    return hn::Or(magnitude, sign);
  }
};

struct Bf16 {
  static constexpr unsigned kBits = 16;
  static constexpr std::uint32_t kLargest = 0x7F7F;

  template <class D, class V>
  static HWY_INLINE V narrow(D d, V bits) {
    const V magnitude = hn::And(bits, set_bits(d, 0x7FFFFFFF));
    const V odd = hn::And(hn::ShiftRight<16>(magnitude), set_bits(d, 1));
    const V up = hn::Add(hn::Add(magnitude, set_bits(d, 0x7FFF)), odd);
    const V rounded = hn::Min(hn::ShiftRight<16>(up), set_bits(d, kLargest));
    return hn::Or(rounded, hn::ShiftRight<16>(hn::Sub(bits, magnitude)));
  }

  template <class D, class V>
  static HWY_INLINE V widen(D, V bits) {
    return hn::ShiftLeft<16>(bits);
  }
};

template <unsigned kBitCount>
struct Upper {
  static constexpr unsigned kBits = kBitCount;

  template <class D, class V>
  static HWY_INLINE V narrow(D, V bits) {
    return hn::ShiftRight<32 - kBits>(bits);
  }
  template <class D, class V>
  static HWY_INLINE V widen(D, V bits) {
    return hn::ShiftLeft<32 - kBits>(bits);
  }
};

// Values one at a time: the meaning that the vector code below accelerates, and its ends.
using One = hn::CappedTag<float, 1>;

template <class Format, bool kResidual>
std::uint32_t encode_ones(const float* input, float* residual, std::size_t n, std::uint8_t* out) {
  const One d;
  const AsU<One> u;
  std::uint32_t largest = 0;
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    auto t = hn::LoadU(d, input + i);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(d, residual + i));
    largest = std::max(largest, hn::GetLane(hn::BitCast(u, hn::Abs(t))));
    const auto narrowed = Format::narrow(d, hn::BitCast(u, t));
    if constexpr (kResidual) {
      hn::StoreU(hn::Sub(t, hn::BitCast(d, Format::widen(d, narrowed))), d, residual + i);
    }
    pending |= std::uint64_t{hn::GetLane(narrowed)} << pending_bits;
    pending_bits += Format::kBits;
    for (; pending_bits >= 8; pending_bits -= 8, pending >>= 8) {
      *out++ = static_cast<std::uint8_t>(pending);
    }
  }
  if (pending_bits > 0) *out = static_cast<std::uint8_t>(pending);
  return largest;
}

// Calls take(i, value) with each value as a vector of one.
template <class Format, class Take>
HWY_INLINE void decode_ones(const std::uint8_t* in, std::size_t n, const Take& take) {
  const One d;
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (; pending_bits < Format::kBits; pending_bits += 8) {
      pending |= std::uint64_t{*in++} << pending_bits;
    }
    const auto bits = static_cast<std::uint32_t>(pending & ((1U << Format::kBits) - 1));
    take(i, hn::BitCast(d, Format::widen(d, set_bits(d, bits))));
    pending >>= Format::kBits;
    pending_bits -= Format::kBits;
  }
}

#if HWY_TARGET != HWY_SCALAR

// Four values of ten bits are five bytes; eight are touched.
constexpr std::size_t kTenBitSlackElems = 4;

template <class Format>
using Tag = std::conditional_t<Format::kBits == 10, hn::Full128<float>, hn::ScalableTag<float>>;

// Values from one vector step on that must follow it, so that it stays in its arrays.
template <class Format>
constexpr std::size_t kSlackElems = Format::kBits == 10 ? kTenBitSlackElems : 0;

template <class V>
HWY_INLINE void store_ten_bits(V bits, std::uint8_t* out) {
  const hn::Full128<std::uint64_t> d;
  const auto apart = hn::BitCast(d, bits);
  const auto pairs = hn::Or(hn::And(apart, hn::Set(d, 0x3FF)), hn::ShiftRight<22>(apart));
  const auto all = hn::Or(pairs, hn::ShiftLeft<20>(hn::Shuffle01(pairs)));
  const std::uint64_t word = hn::GetLane(all);
  std::memcpy(out, &word, sizeof(word));
}

HWY_INLINE hn::Vec<hn::Full128<std::uint32_t>> load_ten_bits(const std::uint8_t* in) {
  const hn::Full128<std::uint8_t> bytes;
  const hn::Full128<std::uint32_t> d;
  constexpr std::uint8_t kNone = 0x80;
  alignas(16) constexpr std::uint8_t kPairs[16] = {0, 1, kNone, kNone, 1, 2, kNone, kNone,
                                                   2, 3, kNone, kNone, 3, 4, kNone, kNone};
  alignas(16) constexpr std::uint32_t kAlign[4] = {64, 16, 4, 1};
  std::uint64_t word;
  std::memcpy(&word, in, sizeof(word));
  const auto loaded = hn::BitCast(bytes, hn::Set(hn::Full128<std::uint64_t>(), word));
  const auto pairs = hn::BitCast(d, hn::TableLookupBytesOr0(loaded, hn::Load(bytes, kPairs)));
  // Value j begins 2 j bits into its pair of bytes.
  const auto aligned = hn::Mul(pairs, hn::Load(d, kAlign));
  return hn::And(hn::ShiftRight<6>(aligned), hn::Set(d, 0x3FF));
}

template <class Format, class D, class V>
HWY_INLINE void store_bits(D, V bits, std::uint8_t* out) {
  if constexpr (Format::kBits == 10) {
    store_ten_bits(bits, out);
  } else if constexpr (Format::kBits == 16) {
    const hn::Rebind<std::uint16_t, D> d;
    hn::StoreU(hn::TruncateTo(d, bits), d, reinterpret_cast<std::uint16_t*>(out));
  } else {
    const hn::Rebind<std::uint8_t, D> d;
    hn::StoreU(hn::TruncateTo(d, bits), d, out);
  }
}

template <class Format, class D>
HWY_INLINE hn::Vec<AsU<D>> load_bits(D, const std::uint8_t* in) {
  if constexpr (Format::kBits == 10) {
    return load_ten_bits(in);
  } else if constexpr (Format::kBits == 16) {
    const hn::Rebind<std::uint16_t, D> d;
    return hn::PromoteTo(AsU<D>(), hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(in)));
  } else {
    const hn::Rebind<std::uint8_t, D> d;
    return hn::PromoteTo(AsU<D>(), hn::LoadU(d, in));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class Format, bool kResidual>
std::uint32_t encode_as(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                        std::size_t n, std::uint8_t* HWY_RESTRICT out) {
  std::size_t i = 0;
  std::uint32_t largest = 0;
#if HWY_TARGET != HWY_SCALAR
  const Tag<Format> d;
  const AsU<Tag<Format>> u;
  const AsI<Tag<Format>> s;
  const std::size_t lanes = hn::Lanes(d);
  auto most = hn::Zero(s);
  for (; i + lanes + kSlackElems<Format> <= n; i += lanes) {
    auto t = hn::LoadU(d, input + i);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(d, residual + i));
    most = hn::Max(most, hn::BitCast(s, hn::Abs(t)));
    const auto narrowed = Format::narrow(d, hn::BitCast(u, t));
    store_bits<Format>(d, narrowed, out + i * Format::kBits / 8);
    if constexpr (kResidual) {
      hn::StoreU(hn::Sub(t, hn::BitCast(d, Format::widen(d, narrowed))), d, residual + i);
    }
  }
  largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(s, most)));
#endif
  return std::max(
      largest, encode_ones<Format, kResidual>(input + i, kResidual ? residual + i : nullptr, n - i,
                                              out + i * Format::kBits / 8));
}

// Calls take(i, values) with vectors of all values.
template <class Format, class Take>
HWY_INLINE void decode_as(const std::uint8_t* HWY_RESTRICT in, std::size_t n, const Take& take) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const Tag<Format> d;
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes + kSlackElems<Format> <= n; i += lanes) {
    const auto bits = load_bits<Format>(d, in + i * Format::kBits / 8);
    take(d, i, hn::BitCast(d, Format::widen(d, bits)));
  }
#endif
  decode_ones<Format>(in + i * Format::kBits / 8, n - i,
                      [&](std::size_t k, auto value) HWY_ATTR { take(One(), i + k, value); });
}

// Calls use(Format()) for the one that is meant.
template <class Use>
HWY_INLINE auto with_format(NarrowFormat format, const Use& use) {
  switch (format) {
    case NarrowFormat::kFp16:
      return use(Fp16());
    case NarrowFormat::kBf16:
      return use(Bf16());
    case NarrowFormat::kUpper16:
      return use(Upper<16>());
    case NarrowFormat::kUpper10:
      return use(Upper<10>());
    default:
      return use(Upper<8>());
  }
}

std::uint32_t encode_narrow(NarrowFormat format, const float* input, float* residual, std::size_t n,
                            std::uint8_t* out) {
  return with_format(format, [&](auto made) HWY_ATTR {
    using Format = decltype(made);
    return residual != nullptr ? encode_as<Format, true>(input, residual, n, out)
                               : encode_as<Format, false>(input, nullptr, n, out);
  });
}

void decode_narrow(NarrowFormat format, const std::uint8_t* in, std::size_t n,
                   float* HWY_RESTRICT out) {
  with_format(format, [&](auto made) HWY_ATTR {
    decode_as<decltype(made)>(
        in, n, [&](auto d, std::size_t i, auto value) HWY_ATTR { hn::StoreU(value, d, out + i); });
  });
}

void decode_add_narrow(NarrowFormat format, const std::uint8_t* in, float weight, std::size_t n,
                       float* HWY_RESTRICT out) {
  with_format(format, [&](auto made) HWY_ATTR {
    decode_as<decltype(made)>(in, n, [&](auto d, std::size_t i, auto value) HWY_ATTR {
      const auto product = hn::Mul(hn::Set(d, weight), value);
      hn::StoreU(hn::Add(hn::LoadU(d, out + i), product), d, out + i);
    });
  });
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(encode_narrow);
HWY_EXPORT(decode_narrow);
HWY_EXPORT(decode_add_narrow);

std::uint32_t encode_narrow(NarrowFormat format, const float* input, float* residual, std::size_t n,
                            std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode_narrow)(format, input, residual, n, out);
}
void decode_narrow(NarrowFormat format, const std::uint8_t* in, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(decode_narrow)(format, in, n, out);
}
void decode_add_narrow(NarrowFormat format, const std::uint8_t* in, float weight, std::size_t n,
                       float* out) {
  HWY_DYNAMIC_DISPATCH(decode_add_narrow)(format, in, weight, n, out);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
