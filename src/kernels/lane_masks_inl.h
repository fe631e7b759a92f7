// What kernels share that select: sums with a residual, bits of lanes, lanes of bits. Included once
// for each SIMD target, after hwy/highway.h, by files that Highway includes again.
#if defined(TERSEWIRE_LANE_MASKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSEWIRE_LANE_MASKS_INL_H
#undef TERSEWIRE_LANE_MASKS_INL_H
#else
#define TERSEWIRE_LANE_MASKS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kWordBits = 64;

// Puts the bits of a mask into a word, from bit `first` on.
template <class D>
HWY_INLINE void store_mask(D d, hn::Mask<D> mask, std::uint64_t* word, std::size_t first) {
  constexpr std::size_t kMaskLanes = hn::MaxLanes(D());
  if constexpr (kMaskLanes >= 8) {
    hn::StoreMaskBits(d, mask, reinterpret_cast<std::uint8_t*>(word) + first / 8);
  } else {
    // Highway writes whole bytes: a narrow vector's bits are put where they belong.
    std::uint8_t few;
    hn::StoreMaskBits(d, mask, &few);
    const std::uint64_t bits = few & ((1U << kMaskLanes) - 1);
    *word = first == 0 ? bits : *word | bits << first;
  }
}

// A mask's bits, the first lane's lowest, kept in a register: a word of them that was put together
// in memory could not be read at once.
template <class D>
HWY_INLINE std::uint64_t bits_of(D d, hn::Mask<D> mask) {
  constexpr std::size_t kMaskLanes = hn::MaxLanes(D());
  if constexpr (kMaskLanes > 8) {
    std::uint16_t bits;
    static_assert(kMaskLanes == 16);
    hn::StoreMaskBits(d, mask, reinterpret_cast<std::uint8_t*>(&bits));
    return bits;
  } else {
    std::uint8_t bits;
    hn::StoreMaskBits(d, mask, &bits);
    return bits & ((1U << kMaskLanes) - 1);
  }
}

// The mask whose lanes are the lowest bits of `bits`.
template <class D>
HWY_INLINE hn::Mask<D> mask_of(D d, std::uint64_t bits) {
  return hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&bits));
}

// T = input + residual (input alone where none is kept) from element i on: a vector, and one value.
template <bool kResidual, class D>
HWY_INLINE hn::Vec<D> load_sum(D d, const float* input, const float* residual, std::size_t i) {
  const auto value = hn::LoadU(d, input + i);
  if constexpr (kResidual) return hn::Add(value, hn::LoadU(d, residual + i));
  return value;
}
HWY_INLINE float sum_at(const float* input, const float* residual, std::size_t i) {
  return residual != nullptr ? input[i] + residual[i] : input[i];
}

// Asks for the cache line that will be wanted a page of memory later. Hardware stops at the end of
// a page, and fetches nothing while a block that is in the cache is packed; this does. An address
// behind the array's end does no harm.
HWY_INLINE void prefetch(const float* at) {
  constexpr std::size_t kAheadBytes = 4096;
  hwy::Prefetch(reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(at) + kAheadBytes));
}

// The same for a first pass, which does little but wait for memory: into the second cache, which
// can wait for more lines at a time than the first, and from twice as far. kWay is -1 for a pass
// from the end to the beginning.
template <int kWay = 1>
HWY_INLINE void prefetch_far(const float* at) {
  constexpr auto kAheadBytes = static_cast<std::uintptr_t>(kWay * 8192);
  constexpr int kRead = 0;
  constexpr int kSecondCache = 2;
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + kAheadBytes), kRead,
      kSecondCache);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
