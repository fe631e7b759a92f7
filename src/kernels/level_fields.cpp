#include "level_fields.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "level_fields.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr unsigned kByteBits = 8;
constexpr unsigned kWordBits = 64;
// Eight fields take as many bytes as one has bits. Vectors handle them in one word, or in two words
// of four fields each.
constexpr std::size_t kGroup = 8;
constexpr unsigned kOneWordBits = 8;
constexpr unsigned kTwoWordBits = 16;

// One field after the other: the meaning that the vector code below accelerates.
HWY_INLINE void pack_scalar(const std::uint32_t* codes, std::size_t n, unsigned bits,
                            std::uint8_t* out) {
  std::uint64_t pending = 0;
  unsigned filled = 0;
  for (std::size_t i = 0; i < n; ++i) {
    pending |= std::uint64_t{codes[i]} << filled;
    for (filled += bits; filled >= kByteBits; filled -= kByteBits) {
      *out++ = static_cast<std::uint8_t>(pending);
      pending >>= kByteBits;
    }
  }
  if (filled > 0) *out = static_cast<std::uint8_t>(pending);
}

HWY_INLINE void unpack_scalar(const std::uint8_t* bytes, std::size_t n, unsigned bits,
                              std::uint32_t* codes) {
  std::uint64_t pending = 0;
  unsigned filled = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (; filled < bits; filled += kByteBits) pending |= std::uint64_t{*bytes++} << filled;
    codes[i] = static_cast<std::uint32_t>(pending & ((std::uint64_t{1} << bits) - 1));
    pending >>= bits;
    filled -= bits;
  }
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE std::size_t grouped(std::size_t, unsigned) { return 0; }
HWY_INLINE void pack_groups(const std::uint32_t*, std::size_t, unsigned, std::uint8_t*) {}
HWY_INLINE void unpack_groups(const std::uint8_t*, std::size_t, unsigned, std::uint32_t*) {}

#else

using U32 = hn::ScalableTag<std::uint32_t>;
using U64 = hn::ScalableTag<std::uint64_t>;
using VecU64 = hn::Vec<U64>;

constexpr std::size_t kLanes = hn::MaxLanes(U32());

// In each 64-bit lane the halves, of `bits` bits each, move together.
HWY_INLINE VecU64 joined(VecU64 halves, unsigned bits) {
  const VecU64 low = hn::And(halves, hn::Set(U64(), 0xFFFFFFFF));
  return hn::Or(low, hn::ShiftLeftSame(hn::ShiftRight<32>(halves), static_cast<int>(bits)));
}
// ... and apart.
HWY_INLINE VecU64 parted(VecU64 word, unsigned bits) {
  const VecU64 low = hn::And(word, hn::Set(U64(), (std::uint64_t{1} << bits) - 1));
  return hn::Or(low, hn::ShiftLeft<32>(hn::ShiftRightSame(word, static_cast<int>(bits))));
}

// kFields fields in each 64-bit lane, from as many times half a vector of codes.
template <std::size_t kFields>
HWY_INLINE VecU64 join_fields(const std::uint32_t* codes, unsigned bits) {
  const U32 u32;
  if constexpr (kFields == 2) {
    return joined(hn::BitCast(U64(), hn::LoadU(u32, codes)), bits);
  } else {
    constexpr std::size_t kHalf = kFields / 2;
    const VecU64 first = join_fields<kHalf>(codes, bits);
    const VecU64 second = join_fields<kHalf>(codes + kHalf / 2 * kLanes, bits);
    const auto halves = hn::ConcatEven(u32, hn::BitCast(u32, second), hn::BitCast(u32, first));
    return joined(hn::BitCast(U64(), halves), kHalf * bits);
  }
}

template <std::size_t kFields>
HWY_INLINE void part_fields(VecU64 words, unsigned bits, std::uint32_t* codes) {
  const U32 u32;
  const hn::Half<U32> half;
  const auto halves = hn::BitCast(u32, parted(words, kFields / 2 * bits));
  if constexpr (kFields == 2) {
    hn::StoreU(halves, u32, codes);
  } else {
    constexpr std::size_t kHalf = kFields / 2;
    part_fields<kHalf>(hn::PromoteTo(U64(), hn::LowerHalf(half, halves)), bits, codes);
    part_fields<kHalf>(hn::PromoteTo(U64(), hn::UpperHalf(half, halves)), bits,
                       codes + kHalf / 2 * kLanes);
  }
}

HWY_INLINE std::uint64_t low_bits(unsigned bits) { return ~std::uint64_t{0} >> (kWordBits - bits); }

// Eight bytes where there are as many, else the first `few`.
HWY_INLINE void store_word(std::uint64_t word, std::size_t few, std::uint8_t* at,
                           const std::uint8_t* end) {
  if (end - at >= 8) {
    std::memcpy(at, &word, 8);
  } else {
    std::memcpy(at, &word, few);
  }
}
// Eight bytes where there are as many, else all that there are.
HWY_INLINE std::uint64_t load_word(const std::uint8_t* at, const std::uint8_t* end) {
  std::uint64_t word = 0;
  if (end - at >= 8) {
    std::memcpy(&word, at, 8);
  } else {
    std::memcpy(&word, at, static_cast<std::size_t>(end - at));
  }
  return word;
}

// The next functions handle whole groups: as many codes as they say.
using Words = std::uint64_t[kMaxLevelFields / 4];

template <std::size_t kFields>
HWY_INLINE void join_all(const std::uint32_t* codes, std::size_t n, unsigned bits,
                         std::uint64_t* words) {
  for (std::size_t i = 0; i < n; i += kFields / 2 * kLanes) {
    hn::StoreU(join_fields<kFields>(codes + i, bits), U64(), words + i / kFields);
  }
}

template <std::size_t kFields>
HWY_INLINE void part_all(const std::uint64_t* words, std::size_t n, unsigned bits,
                         std::uint32_t* codes) {
  for (std::size_t i = 0; i < n; i += kFields / 2 * kLanes) {
    part_fields<kFields>(hn::LoadU(U64(), words + i / kFields), bits, codes + i);
  }
}

HWY_INLINE void pack_groups(const std::uint32_t* codes, std::size_t n, unsigned bits,
                            std::uint8_t* out) {
  const std::uint8_t* end = out + n / kGroup * bits;
  Words words;
  if (bits <= kOneWordBits) {
    join_all<8>(codes, n, bits, words);
    for (std::size_t i = 0; i < n / kGroup; ++i, out += bits) store_word(words[i], bits, out, end);
    return;
  }
  join_all<4>(codes, n, bits, words);
  const unsigned half = 4 * bits;
  for (std::size_t i = 0; i < n / kGroup; ++i, out += bits) {
    const std::uint64_t second = words[2 * i + 1];
    store_word(words[2 * i] | (half < kWordBits ? second << half : 0), kOneWordBits, out, end);
    store_word(second >> (kWordBits - half), bits - kOneWordBits, out + kOneWordBits, end);
  }
}

HWY_INLINE void unpack_groups(const std::uint8_t* bytes, std::size_t n, unsigned bits,
                              std::uint32_t* codes) {
  const std::uint8_t* end = bytes + n / kGroup * bits;
  Words words;
  if (bits <= kOneWordBits) {
    const std::uint64_t mask = low_bits(kGroup * bits);
    for (std::size_t i = 0; i < n / kGroup; ++i, bytes += bits) {
      words[i] = load_word(bytes, end) & mask;
    }
    return part_all<8>(words, n, bits, codes);
  }
  const unsigned half = 4 * bits;
  const std::uint64_t mask = low_bits(half);
  for (std::size_t i = 0; i < n / kGroup; ++i, bytes += bits) {
    words[2 * i] = load_word(bytes, end) & mask;
    words[2 * i + 1] = load_word(bytes + half / kByteBits, end) >> half % kByteBits & mask;
  }
  part_all<4>(words, n, bits, codes);
}

// How many of n codes the vectors handle.
HWY_INLINE std::size_t grouped(std::size_t n, unsigned bits) {
  return bits <= kTwoWordBits ? n / (4 * kLanes) * (4 * kLanes) : 0;
}

#endif

void pack_level_fields(const std::uint32_t* codes, std::size_t n, unsigned bits,
                       std::uint8_t* out) {
  const std::size_t whole = grouped(n, bits);
  if (whole > 0) pack_groups(codes, whole, bits, out);
  pack_scalar(codes + whole, n - whole, bits, out + whole / kGroup * bits);
}

void unpack_level_fields(const std::uint8_t* bytes, std::size_t n, unsigned bits,
                         std::uint32_t* codes) {
  const std::size_t whole = grouped(n, bits);
  if (whole > 0) unpack_groups(bytes, whole, bits, codes);
  unpack_scalar(bytes + whole / kGroup * bits, n - whole, bits, codes + whole);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(pack_level_fields);
HWY_EXPORT(unpack_level_fields);

void pack_level_fields(const std::uint32_t* codes, std::size_t n, unsigned bits,
                       std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(pack_level_fields)(codes, n, bits, out);
}
void unpack_level_fields(const std::uint8_t* bytes, std::size_t n, unsigned bits,
                         std::uint32_t* codes) {
  HWY_DYNAMIC_DISPATCH(unpack_level_fields)(bytes, n, bits, codes);
}

}  // namespace tersewire::kernels
#endif
