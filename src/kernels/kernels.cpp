#include "kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "lane_masks_inl.h"
#include "zero_run.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using VecF = hn::Vec<F>;
using VecI = hn::Vec<I>;

constexpr std::uint64_t kOneInEachByte = 0x0101010101010101;
constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kLineElems = 64 / sizeof(float);

HWY_INLINE std::uint32_t abs_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
}

HWY_INLINE VecI abs_bits(VecF value) { return hn::BitCast(I(), hn::Abs(value)); }

HWY_INLINE std::uint32_t max_of(VecI a, VecI b, std::uint32_t tail) {
  const auto lanes = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I(), hn::Max(a, b))));
  return lanes > tail ? lanes : tail;
}

template <bool kTwo>
std::uint32_t max_abs_sum_bits_of(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                  std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  const auto load = [&](std::size_t i) HWY_ATTR {
    const VecF first = hn::LoadU(f, a + i);
    if constexpr (kTwo) return hn::Add(first, hn::LoadU(f, b + i));
    return first;
  };
  const std::size_t whole = n / (2 * lanes) * (2 * lanes);
  std::uint32_t tail = 0;
  for (std::size_t i = whole; i < n; ++i) {
    const std::uint32_t bits = abs_bits(kTwo ? a[i] + b[i] : a[i]);
    tail = bits > tail ? bits : tail;
  }
  VecI even = hn::Zero(I());
  VecI odd = hn::Zero(I());
  // From the end to the beginning: that is what the caches hold for the pass that comes next, where
  // they cannot hold all.
  for (std::size_t i = whole; i > 0;) {
    i -= 2 * lanes;
    for (std::size_t line = 0; line < 2 * kLanes; line += kLineElems) {
      prefetch_far<-1>(a + i + line);
      if constexpr (kTwo) prefetch_far<-1>(b + i + line);
    }
    even = hn::Max(even, abs_bits(load(i)));
    odd = hn::Max(odd, abs_bits(load(i + lanes)));
  }
  return max_of(even, odd, tail);
}

std::uint32_t max_abs_sum_bits(const float* a, const float* b, std::size_t n) {
  return b != nullptr ? max_abs_sum_bits_of<true>(a, b, n) : max_abs_sum_bits_of<false>(a, b, n);
}

std::uint32_t accumulate_max_abs_bits(float* HWY_RESTRICT target, const float* HWY_RESTRICT source,
                                      std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  VecI largest = hn::Zero(I());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF sum = hn::Add(hn::LoadU(f, target + i), hn::LoadU(f, source + i));
    hn::StoreU(sum, f, target + i);
    largest = hn::Max(largest, abs_bits(sum));
  }
  std::uint32_t tail = 0;
  for (; i < n; ++i) {
    target[i] += source[i];
    const std::uint32_t bits = abs_bits(target[i]);
    tail = bits > tail ? bits : tail;
  }
  return max_of(largest, largest, tail);
}

void subtract_where_above(float* HWY_RESTRICT target, float limit, std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  const VecF at = hn::Set(f, limit);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF value = hn::LoadU(f, target + i);
    const VecF taken = hn::IfThenElseZero(hn::Ge(hn::Abs(value), at), at);
    hn::StoreU(hn::Sub(value, taken), f, target + i);
  }
  for (; i < n; ++i) {
    if (std::fabs(target[i]) >= limit) target[i] -= limit;
  }
}

// 64 values or fewer, one at a time: the meaning that the vector code below accelerates.
HWY_INLINE bool quantize_word_scalar(const float* input, float* residual, std::size_t n, float m,
                                     std::uint64_t* sent, std::uint64_t* negative) {
  std::uint64_t sent_bits = 0;
  std::uint64_t negative_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float t = residual != nullptr ? input[i] + residual[i] : input[i];
    const bool is_sent = std::fabs(t) + std::fabs(t) >= m;
    sent_bits |= std::uint64_t{is_sent} << i;
    negative_bits |= std::uint64_t{t < 0} << i;
    if (residual != nullptr) residual[i] = is_sent ? t - std::copysign(m, t) : t;
  }
  *sent = sent_bits;
  *negative = negative_bits;
  return sent_bits != 0;
}

// What quantize_word() compares with.
struct Quantizer {
  VecF m;
  VecF limit;  // the smallest magnitude that is sent
};

// The smallest magnitude that, doubled, reaches m.
HWY_INLINE float half_up(float m) {
  const float half = m * 0.5F;  // rounded where m is denormal and odd
  return half + half < m ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(half) + 1) : half;
}

// 64 values. Returns what is sent.
template <bool kResidual>
HWY_INLINE std::uint64_t quantize_word(const float* HWY_RESTRICT input,
                                       float* HWY_RESTRICT residual, const Quantizer& quantizer,
                                       std::uint64_t* sent, std::uint64_t* negative) {
  const F f;
  for (std::size_t i = 0; i < kWordBits; i += kLineElems) {
    prefetch(input + i);
    if constexpr (kResidual) prefetch(residual + i);
  }
  std::uint64_t sent_bits = 0;
  std::uint64_t negative_bits = 0;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kWordBits; i += kLanes) {
    VecF t = hn::LoadU(f, input + i);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(f, residual + i));
    const auto is_sent = hn::Ge(hn::Abs(t), quantizer.limit);
    sent_bits |= bits_of(f, is_sent) << i;
    negative_bits |= bits_of(f, hn::Lt(t, hn::Zero(f))) << i;
    if constexpr (kResidual) {
      const VecF rest = hn::Sub(t, hn::CopySignToAbs(quantizer.m, t));
      hn::StoreU(hn::IfThenElse(is_sent, rest, t), f, residual + i);
    }
  }
  *sent = sent_bits;
  *negative = negative_bits;
  return sent_bits;
}

template <bool kResidual>
bool quantize_ternary_of(const float* input, float* residual, std::size_t n, float m,
                         std::uint64_t* sent, std::uint64_t* negative) {
  const F f;
  const Quantizer quantizer{hn::Set(f, m), hn::Set(f, half_up(m))};
  std::uint64_t all_sent = 0;
  std::size_t i = 0;
  for (; i + kWordBits <= n; i += kWordBits) {
    all_sent |= quantize_word<kResidual>(input + i, kResidual ? residual + i : nullptr, quantizer,
                                         sent++, negative++);
  }
  bool any = all_sent != 0;
  if (i < n) {
    any |= quantize_word_scalar(input + i, kResidual ? residual + i : nullptr, n - i, m, sent,
                                negative);
  }
  return any;
}

bool quantize_ternary(const float* input, float* residual, std::size_t n, float m,
                      std::uint64_t* sent, std::uint64_t* negative) {
  return residual != nullptr ? quantize_ternary_of<true>(input, residual, n, m, sent, negative)
                             : quantize_ternary_of<false>(input, residual, n, m, sent, negative);
}

using U64 = hn::ScalableTag<std::uint64_t>;
using VecU64 = hn::Vec<U64>;

// In each 64-bit lane, 40 bits become 8 bytes of five bits each.
HWY_INLINE VecU64 spread_fives(VecU64 bits) {
  const auto field = [&](VecU64 from, std::uint64_t mask)
                         HWY_ATTR { return hn::And(from, hn::Set(U64(), mask)); };
  VecU64 v = hn::Or(field(bits, 0xFFFFF), hn::ShiftLeft<12>(field(bits, 0xFFFFF00000)));
  v = hn::Or(field(v, 0x000003FF000003FF), hn::ShiftLeft<6>(field(v, 0x000FFC00000FFC00)));
  return hn::Or(field(v, 0x001F001F001F001F), hn::ShiftLeft<3>(field(v, 0x03E003E003E003E0)));
}

// Bytes of five bits each, of +1 and -1 digits, become groups: Horner's rule on eight at once.
template <int kDigit>
HWY_INLINE VecU64 group_digit(VecU64 plus, VecU64 minus) {
  const VecU64 one = hn::Set(U64(), kOneInEachByte);
  const VecU64 p = hn::And(hn::ShiftRight<kDigit>(plus), one);
  const VecU64 m = hn::And(hn::ShiftRight<kDigit>(minus), one);
  return hn::Sub(hn::Add(p, one), m);
}
template <int kDigit>
HWY_INLINE VecU64 next_digit(VecU64 high, VecU64 plus, VecU64 minus) {
  const VecU64 times3 = hn::Add(high, hn::Add(high, high));
  return hn::Add(times3, group_digit<kDigit>(plus, minus));
}

void pack_fives(const std::uint64_t* HWY_RESTRICT sent, const std::uint64_t* HWY_RESTRICT negative,
                std::size_t words, std::uint64_t* HWY_RESTRICT out) {
  const U64 d;
  for (std::size_t i = 0; i < words; i += hn::Lanes(d)) {
    const VecU64 is_sent = hn::LoadU(d, sent + i);
    const VecU64 is_negative = hn::LoadU(d, negative + i);
    const VecU64 plus = spread_fives(hn::AndNot(is_negative, is_sent));
    const VecU64 minus = spread_fives(hn::And(is_negative, is_sent));
    VecU64 group = group_digit<0>(plus, minus);
    group = next_digit<1>(group, plus, minus);
    group = next_digit<2>(group, plus, minus);
    group = next_digit<3>(group, plus, minus);
    group = next_digit<4>(group, plus, minus);
    hn::StoreU(group, d, out + i);
  }
}

void not_equal_bits(const std::uint8_t* bytes, std::size_t words, std::uint8_t value,
                    std::uint64_t* bits) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto unwanted = hn::Set(d, value);
  for (std::size_t word = 0; word < words; ++word) {
    for (std::size_t i = 0; i < kWordBits; i += hn::Lanes(d)) {
      const auto found = hn::LoadU(d, bytes + word * kWordBits + i);
      store_mask(d, hn::Ne(found, unwanted), bits + word, i);
    }
  }
}

std::uint64_t count_groups(const std::uint8_t* bytes, std::size_t n) {
  const hn::ScalableTag<std::uint8_t> u8;
  const hn::ScalableTag<std::uint64_t> u64;
  const std::size_t lanes = hn::Lanes(u8);
  const auto one = hn::Set(u8, 1);
  const auto base = hn::Set(u8, kFirstRunCode - kShortestRun);
  auto sums = hn::Zero(u64);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    // Saturating: 0 for 241 and below, 1 for 242 (a group all the same), else the run's length.
    const auto run = hn::SaturatedSub(hn::LoadU(u8, bytes + i), base);
    sums = hn::Add(sums, hn::SumsOf8(hn::Max(run, one)));
  }
  std::uint64_t groups = hn::GetLane(hn::SumOfLanes(u64, sums));
  for (; i < n; ++i) groups += bytes[i] >= kFirstRunCode ? run_length(bytes[i]) : 1;
  return groups;
}

void scale(float* HWY_RESTRICT target, const float* HWY_RESTRICT source, float weight,
           std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  const VecF by = hn::Set(f, weight);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(by, hn::LoadU(f, source + i)), f, target + i);
  }
  for (; i < n; ++i) target[i] = weight * source[i];
}

void add_scaled(float* HWY_RESTRICT target, const float* HWY_RESTRICT source, float weight,
                std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  const VecF by = hn::Set(f, weight);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VecF product = hn::Mul(by, hn::LoadU(f, source + i));
    hn::StoreU(hn::Add(hn::LoadU(f, target + i), product), f, target + i);
  }
  for (; i < n; ++i) target[i] += weight * source[i];
}

void add(float* HWY_RESTRICT target, const float* HWY_RESTRICT source, std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(f, target + i), hn::LoadU(f, source + i)), f, target + i);
  }
  for (; i < n; ++i) target[i] += source[i];
}

void copy_streaming(float* HWY_RESTRICT target, const float* HWY_RESTRICT source, std::size_t n) {
  const F f;
  const std::size_t lanes = hn::Lanes(f);
  const auto aligned = [&](std::size_t i) {
    return reinterpret_cast<std::uintptr_t>(target + i) % (lanes * sizeof(float)) == 0;
  };
  // Streaming stores want whole vectors at their own alignment.
  std::size_t i = 0;
  for (; i < n && !aligned(i); ++i) target[i] = source[i];
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(f, source + i), f, target + i);
  std::memcpy(target + i, source + i, (n - i) * sizeof(float));
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(max_abs_sum_bits);
HWY_EXPORT(accumulate_max_abs_bits);
HWY_EXPORT(subtract_where_above);
HWY_EXPORT(quantize_ternary);
HWY_EXPORT(pack_fives);
HWY_EXPORT(not_equal_bits);
HWY_EXPORT(count_groups);
HWY_EXPORT(scale);
HWY_EXPORT(add_scaled);
HWY_EXPORT(add);
HWY_EXPORT(copy_streaming);

std::uint32_t max_abs_sum_bits(const float* a, const float* b, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(max_abs_sum_bits)(a, b, n);
}
std::uint32_t accumulate_max_abs_bits(float* target, const float* source, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(accumulate_max_abs_bits)(target, source, n);
}
void subtract_where_above(float* target, float limit, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(subtract_where_above)(target, limit, n);
}
bool quantize_ternary(const float* input, float* residual, std::size_t n, float m,
                      std::uint64_t* sent, std::uint64_t* negative) {
  return HWY_DYNAMIC_DISPATCH(quantize_ternary)(input, residual, n, m, sent, negative);
}
void pack_fives(const std::uint64_t* sent, const std::uint64_t* negative, std::size_t words,
                std::uint64_t* out) {
  HWY_DYNAMIC_DISPATCH(pack_fives)(sent, negative, words, out);
}
void not_equal_bits(const std::uint8_t* bytes, std::size_t words, std::uint8_t value,
                    std::uint64_t* bits) {
  HWY_DYNAMIC_DISPATCH(not_equal_bits)(bytes, words, value, bits);
}
std::uint64_t count_groups(const std::uint8_t* bytes, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(count_groups)(bytes, n);
}
void scale(float* target, const float* source, float weight, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(scale)(target, source, weight, n);
}
void add_scaled(float* target, const float* source, float weight, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(target, source, weight, n);
}
void add(float* target, const float* source, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add)(target, source, n);
}
void copy_streaming(float* target, const float* source, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(copy_streaming)(target, source, n);
}

void end_streaming() { hwy::FlushStream(); }

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
