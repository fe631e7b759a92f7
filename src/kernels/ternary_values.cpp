#include "ternary_values.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ternary_values.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "lane_masks_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace {

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using VecF = hn::Vec<F>;
using VecI = hn::Vec<I>;

constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::uint32_t kCodeDigits[] = {0, 1, 0, ~std::uint32_t{0}};
static_assert(kLanes == hn::MaxLanes(I()));

// The 64 bits from bit `at` on.
HWY_INLINE std::uint64_t bits_from(const std::uint64_t* words, std::size_t at) {
  const std::uint64_t* word = words + at / kWordBits;
  const std::size_t shift = at % kWordBits;
  return shift == 0 ? word[0] : word[0] >> shift | word[1] << (kWordBits - shift);
}

// 64 digits, or those that are left, the lowest bits first.
struct Word {
  std::uint64_t sent;
  std::uint64_t negative;

  Word(const TernaryDigits& digits, std::size_t i)
      : sent(bits_from(digits.sent, digits.first + i)),
        negative(bits_from(digits.negative, digits.first + i)) {}

  HWY_INLINE void skip(std::size_t count) {
    sent >>= count;
    negative >>= count;
  }
  // The lowest digit: 0 or 2 for 0, 1 for 1, 3 for -1.
  [[nodiscard]] std::size_t code() const { return (sent & 1) | (negative & 1) << 1; }
};

// The values of as many digits as a vector has lanes.
struct Values {
  explicit Values(float value) : plus(hn::Set(F(), value)), minus(hn::Neg(plus)) {}

  HWY_INLINE VecF signed_values(const Word& word) const {
    return hn::IfThenElse(mask_of(F(), word.negative), minus, plus);
  }
  // 0 where the digit is 0.
  HWY_INLINE VecF operator()(const Word& word) const {
    return hn::IfThenElseZero(mask_of(F(), word.sent), signed_values(word));
  }

  VecF plus;
  VecF minus;
};

// The values of single digits, by their codes: no branch could be foretold.
struct CodeValues {
  HWY_INLINE float operator()(const Word& word) const { return values[word.code()]; }

  float values[4];
};

template <bool kStream>
void fill(const TernaryDigits& digits, std::size_t n, float value, float* HWY_RESTRICT out) {
  const F f;
  const Values values(value);
  const CodeValues single{{0.0F, value, 0.0F, -value}};
  for (std::size_t i = 0; i < n; i += kWordBits) {
    Word word(digits, i);
    const std::size_t end = std::min(n, i + kWordBits);
    std::size_t at = i;
    for (; at + kLanes <= end; at += kLanes, word.skip(kLanes % kWordBits)) {
      if constexpr (kStream) {
        hn::Stream(values(word), f, out + at);
      } else {
        hn::StoreU(values(word), f, out + at);
      }
    }
    for (; at < end; ++at, word.skip(1)) out[at] = single(word);
  }
}

}  // namespace

void fill_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out) {
  fill<false>(digits, n, value, out);
}

void stream_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out) {
  // Streaming stores want whole vectors at their own alignment.
  constexpr std::size_t kVectorBytes = kLanes * sizeof(float);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % kVectorBytes;
  const std::size_t before = past == 0 ? 0 : std::min(n, (kVectorBytes - past) / sizeof(float));
  fill<false>(digits, before, value, out);
  fill<true>(digits.from(before), n - before, value, out + before);
}

void add_ternary(const TernaryDigits& digits, std::size_t n, float value,
                 float* HWY_RESTRICT target) {
  const F f;
  const Values values(value);
  const CodeValues single{
      {-0.0F, value, -0.0F, -value}};  // adding -0 changes nothing, not even a -0
  for (std::size_t i = 0; i < n; i += kWordBits) {
    Word word(digits, i);
    const std::size_t end = std::min(n, i + kWordBits);
    std::size_t at = i;
    for (; at + kLanes <= end; at += kLanes, word.skip(kLanes % kWordBits)) {
      const VecF before = hn::LoadU(f, target + at);
      const VecF sum = hn::Add(before, values.signed_values(word));
      hn::StoreU(hn::IfThenElse(mask_of(f, word.sent), sum, before), f, target + at);
    }
    for (; at < end; ++at, word.skip(1)) target[at] += single(word);
  }
}

void add_ternary_levels(const TernaryDigits& digits, std::size_t n,
                        std::int32_t* HWY_RESTRICT levels) {
  const I d;
  for (std::size_t i = 0; i < n; i += kWordBits) {
    Word word(digits, i);
    const std::size_t end = std::min(n, i + kWordBits);
    std::size_t at = i;
    for (; at + kLanes <= end; at += kLanes, word.skip(kLanes % kWordBits)) {
      // Of masks, which are -1 or 0: minus 1 or 0, and 2 less where it is negative.
      const VecI sent = hn::VecFromMask(d, mask_of(d, word.sent));
      const VecI minus = hn::VecFromMask(d, mask_of(d, word.sent & word.negative));
      const VecI sum = hn::Sub(hn::LoadU(d, levels + at), sent);
      hn::StoreU(hn::Add(sum, hn::Add(minus, minus)), d, levels + at);
    }
    for (; at < end; ++at, word.skip(1)) {
      levels[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(levels[at]) +
                                             kCodeDigits[word.code()]);
    }
  }
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {
HWY_EXPORT(fill_ternary);
HWY_EXPORT(stream_ternary);
HWY_EXPORT(add_ternary);
HWY_EXPORT(add_ternary_levels);

void fill_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out) {
  HWY_DYNAMIC_DISPATCH(fill_ternary)(digits, n, value, out);
}
void stream_ternary(const TernaryDigits& digits, std::size_t n, float value, float* out) {
  HWY_DYNAMIC_DISPATCH(stream_ternary)(digits, n, value, out);
}
void add_ternary(const TernaryDigits& digits, std::size_t n, float value, float* target) {
  HWY_DYNAMIC_DISPATCH(add_ternary)(digits, n, value, target);
}
void add_ternary_levels(const TernaryDigits& digits, std::size_t n, std::int32_t* levels) {
  HWY_DYNAMIC_DISPATCH(add_ternary_levels)(digits, n, levels);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
