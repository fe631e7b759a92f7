#include "selection.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "selection.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <bit>
#include <cmath>

#include "lane_masks_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using VecF = hn::Vec<F>;
using VecI = hn::Vec<I>;

constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kLineElems = 64 / sizeof(float);

HWY_INLINE VecI abs_bits(VecF value) { return hn::BitCast(I(), hn::Abs(value)); }
HWY_INLINE std::uint32_t abs_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
}

HWY_INLINE std::uint32_t max_lane(VecI values) {
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I(), values)));
}

// The largest |T| of elements [begin, end).
template <bool kResidual>
HWY_INLINE std::uint32_t largest_in(const float* input, const float* residual, std::size_t begin,
                                    std::size_t end) {
  if (end - begin < kLanes) {
    std::uint32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t bits = abs_bits(sum_at(input, kResidual ? residual : nullptr, i));
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }
  // The last vector reaches back over elements that have been looked at: no harm in a maximum.
  VecI largest = abs_bits(load_sum<kResidual>(F(), input, residual, end - kLanes));
  for (std::size_t i = begin; i + kLanes < end; i += kLanes) {
    largest = hn::Max(largest, abs_bits(load_sum<kResidual>(F(), input, residual, i)));
  }
  return max_lane(largest);
}

template <bool kResidual>
std::uint32_t bin_maxima_of(const float* input, const float* residual, std::size_t n,
                            std::size_t bin, float* maxima) {
  std::uint32_t largest = 0;
  std::size_t index = 0;
  for (std::size_t begin = 0; begin < n; ++index) {
    const std::size_t end = n - begin < bin ? n : begin + bin;
    const std::uint32_t bits = largest_in<kResidual>(input, residual, begin, end);
    maxima[index] = std::bit_cast<float>(bits);
    largest = bits > largest ? bits : largest;
    begin = end;
  }
  return largest;
}

std::uint32_t bin_maxima(const float* input, const float* residual, std::size_t n, std::size_t bin,
                         float* maxima) {
  return residual != nullptr ? bin_maxima_of<true>(input, residual, n, bin, maxima)
                             : bin_maxima_of<false>(input, residual, n, bin, maxima);
}

// Elements whose bins' maxima are laid out at once.
constexpr std::size_t kTileElems = 1024;

// limits[i] becomes the maximum of the bin that element first + i is in. May write kLanes - 1 more.
HWY_INLINE void spread_maxima(const BinRule& rule, std::size_t first, std::size_t n,
                              float* limits) {
  std::size_t index = first / rule.bin;
  std::size_t left = rule.bin - first % rule.bin;
  for (std::size_t i = 0; i < n; ++index, left = rule.bin) {
    const std::size_t end = left < n - i ? i + left : n;
    const VecF limit = hn::Set(F(), rule.maxima[index]);
    for (std::size_t at = i; at < end; at += kLanes) hn::StoreU(limit, F(), limits + at);
    i = end;
  }
}

// 64 values or fewer, one at a time: the meaning that the vector code below accelerates.
HWY_INLINE void select_word_scalar(const float* input, float* residual, std::size_t n,
                                   const float* limits, const BinRule& rule,
                                   std::uint64_t* selected, std::uint64_t* negative) {
  std::uint64_t selected_bits = 0;
  std::uint64_t negative_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float t = sum_at(input, residual, i);
    const float h = t + rule.gain * input[i];
    const bool is_selected = std::fabs(h) >= limits[i] && t != 0;
    selected_bits |= std::uint64_t{is_selected} << i;
    negative_bits |= std::uint64_t{t < 0} << i;
    if (residual != nullptr) residual[i] = is_selected ? t - std::copysign(rule.scale, t) : t;
  }
  *selected = selected_bits;
  *negative = negative_bits;
}

// 64 values.
template <bool kResidual>
HWY_INLINE void select_word(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                            const float* HWY_RESTRICT limits, VecF gain, VecF scale,
                            std::uint64_t* selected, std::uint64_t* negative) {
  const F f;
  const VecF zero = hn::Zero(f);
  for (std::size_t i = 0; i < kWordElems; i += kLineElems) {
    prefetch(input + i);
    if constexpr (kResidual) prefetch(residual + i);
  }
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kWordElems; i += kLanes) {
    const VecF t = load_sum<kResidual>(F(), input, residual, i);
    const VecF h = hn::Add(t, hn::Mul(gain, hn::LoadU(f, input + i)));
    const auto is_selected = hn::And(hn::Ge(hn::Abs(h), hn::LoadU(f, limits + i)), hn::Ne(t, zero));
    store_mask(f, is_selected, selected, i);
    store_mask(f, hn::Lt(t, zero), negative, i);
    if constexpr (kResidual) {
      const VecF rest = hn::Sub(t, hn::CopySignToAbs(scale, t));
      hn::StoreU(hn::IfThenElse(is_selected, rest, t), f, residual + i);
    }
  }
}

template <bool kResidual>
void select_in_bins_of(const float* input, float* residual, std::size_t begin, std::size_t end,
                       const BinRule& rule, std::uint64_t* selected, std::uint64_t* negative) {
  const VecF gain = hn::Set(F(), rule.gain);
  const VecF scale = hn::Set(F(), rule.scale);
  float limits[kTileElems + kLanes];
  for (std::size_t tile = begin; tile < end; tile += kTileElems) {
    const std::size_t n = end - tile < kTileElems ? end - tile : kTileElems;
    spread_maxima(rule, tile, n, limits);
    for (std::size_t i = 0; i < n; i += kWordElems) {
      const std::size_t at = tile + i;
      const std::size_t word = at / kWordElems;
      float* rest = kResidual ? residual + at : nullptr;
      if (n - i < kWordElems) {
        select_word_scalar(input + at, rest, n - i, limits + i, rule, selected + word,
                           negative + word);
      } else {
        select_word<kResidual>(input + at, rest, limits + i, gain, scale, selected + word,
                               negative + word);
      }
    }
  }
}

void select_in_bins(const float* input, float* residual, std::size_t begin, std::size_t end,
                    const BinRule& rule, std::uint64_t* selected, std::uint64_t* negative) {
  if (residual != nullptr) {
    return select_in_bins_of<true>(input, residual, begin, end, rule, selected, negative);
  }
  select_in_bins_of<false>(input, nullptr, begin, end, rule, selected, negative);
}

template <bool kResidual>
std::uint32_t select_above_of(const float* HWY_RESTRICT input, const float* HWY_RESTRICT residual,
                              std::size_t n, float limit, std::uint64_t* selected) {
  const F f;
  const std::size_t whole = n / kWordElems * kWordElems;
  std::uint32_t tail = 0;
  std::uint64_t tail_bits = 0;
  for (std::size_t i = whole; i < n; ++i) {
    const float t = sum_at(input, kResidual ? residual : nullptr, i);
    const std::uint32_t bits = abs_bits(t);
    tail = bits > tail ? bits : tail;
    tail_bits |= std::uint64_t{std::fabs(t) >= limit} << (i - whole);
  }
  if (whole < n) selected[whole / kWordElems] = tail_bits;
  const VecF at_least = hn::Set(f, limit);
  VecI largest = hn::Set(I(), static_cast<std::int32_t>(tail));
  for (std::size_t word = 0; word < whole / kWordElems; ++word) {
    for (std::size_t i = 0; i < kWordElems; i += kLineElems) {
      prefetch(input + word * kWordElems + i);
      if constexpr (kResidual) prefetch(residual + word * kWordElems + i);
    }
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kWordElems; i += kLanes) {
      const VecF magnitude =
          hn::Abs(load_sum<kResidual>(F(), input, residual, word * kWordElems + i));
      largest = hn::Max(largest, hn::BitCast(I(), magnitude));
      store_mask(f, hn::Ge(magnitude, at_least), selected + word, i);
    }
  }
  return max_lane(largest);
}

std::uint32_t select_above(const float* input, const float* residual, std::size_t n, float limit,
                           std::uint64_t* selected) {
  return residual != nullptr ? select_above_of<true>(input, residual, n, limit, selected)
                             : select_above_of<false>(input, residual, n, limit, selected);
}

// Writes the number of the first bit, and takes it off; any number where there is none. The last
// bit, set or not, keeps the compiler from a branch for that.
HWY_INLINE void list_bit(std::uint64_t& left, std::uint32_t first, std::uint32_t* place) {
  constexpr std::uint64_t kLastBit = std::uint64_t{1} << (kWordElems - 1);
  *place = first + static_cast<std::uint32_t>(std::countr_zero(left | kLastBit));
  left &= left - 1;
}

std::size_t list_selected(const std::uint64_t* HWY_RESTRICT words, std::size_t n,
                          std::uint32_t* HWY_RESTRICT places) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t left = words[i];
    const auto first = static_cast<std::uint32_t>(i * kWordElems);
    std::uint32_t* out = places + count;
    count += static_cast<std::size_t>(std::popcount(left));
    // Six at once, there or not: how many there are cannot be foretold by a branch.
    do {
      list_bit(left, first, out);
      list_bit(left, first, out + 1);
      list_bit(left, first, out + 2);
      list_bit(left, first, out + 3);
      list_bit(left, first, out + 4);
      list_bit(left, first, out + 5);
      out += 6;
    } while (left != 0);
  }
  return count;
}

std::uint64_t count_bits(const std::uint8_t* bytes, std::size_t n) {
  const hn::ScalableTag<std::uint8_t> u8;
  const hn::ScalableTag<std::uint64_t> u64;
  const std::size_t lanes = hn::Lanes(u8);
  auto sums = hn::Zero(u64);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sums = hn::Add(sums, hn::SumsOf8(hn::PopulationCount(hn::LoadU(u8, bytes + i))));
  }
  std::uint64_t count = hn::GetLane(hn::SumOfLanes(u64, sums));
  for (; i < n; ++i) count += static_cast<std::uint64_t>(std::popcount(bytes[i]));
  return count;
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(bin_maxima);
HWY_EXPORT(select_in_bins);
HWY_EXPORT(select_above);
HWY_EXPORT(list_selected);
HWY_EXPORT(count_bits);

std::uint32_t bin_maxima(const float* input, const float* residual, std::size_t n, std::size_t bin,
                         float* maxima) {
  return HWY_DYNAMIC_DISPATCH(bin_maxima)(input, residual, n, bin, maxima);
}
void select_in_bins(const float* input, float* residual, std::size_t begin, std::size_t end,
                    const BinRule& rule, std::uint64_t* selected, std::uint64_t* negative) {
  HWY_DYNAMIC_DISPATCH(select_in_bins)(input, residual, begin, end, rule, selected, negative);
}
std::uint32_t select_above(const float* input, const float* residual, std::size_t n, float limit,
                           std::uint64_t* selected) {
  return HWY_DYNAMIC_DISPATCH(select_above)(input, residual, n, limit, selected);
}

std::size_t list_selected(const std::uint64_t* words, std::size_t n, std::uint32_t* places) {
  return HWY_DYNAMIC_DISPATCH(list_selected)(words, n, places);
}
std::uint64_t count_bits(const std::uint8_t* bytes, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(count_bits)(bytes, n);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
