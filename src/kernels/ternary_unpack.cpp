#include "ternary_unpack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ternary_unpack.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <array>
#include <cstring>

#include "lane_masks_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kGroupsPerWord = 8;

using U8 = hn::ScalableTag<std::uint8_t>;
using U64 = hn::ScalableTag<std::uint64_t>;
using VecU8 = hn::Vec<U8>;
using VecU64 = hn::Vec<U64>;

HWY_INLINE VecU64 masked(VecU64 bits, std::uint64_t mask) {
  return hn::And(bits, hn::Set(U64(), mask));
}

// In each 64-bit lane, 8 bytes of five bits each become 40 bits.
HWY_INLINE VecU64 join_fives(VecU64 v) {
  v = hn::Or(masked(v, 0x001F001F001F001F), masked(hn::ShiftRight<3>(v), 0x03E003E003E003E0));
  v = hn::Or(masked(v, 0x000003FF000003FF), masked(hn::ShiftRight<6>(v), 0x000FFC00000FFC00));
  return hn::Or(masked(v, 0xFFFFF), masked(hn::ShiftRight<12>(v), 0xFFFFF00000));
}

// Of 64 bits, the even ones in the lower half.
HWY_INLINE VecU64 join_even(VecU64 bits) {
  VecU64 v = masked(bits, 0x5555555555555555);
  v = masked(hn::Or(v, hn::ShiftRight<1>(v)), 0x3333333333333333);
  v = masked(hn::Or(v, hn::ShiftRight<2>(v)), 0x0F0F0F0F0F0F0F0F);
  v = masked(hn::Or(v, hn::ShiftRight<4>(v)), 0x00FF00FF00FF00FF);
  v = masked(hn::Or(v, hn::ShiftRight<8>(v)), 0x0000FFFF0000FFFF);
  return masked(hn::Or(v, hn::ShiftRight<16>(v)), 0xFFFFFFFF);
}

// And back.
HWY_INLINE VecU64 spread_even(VecU64 bits) {
  VecU64 v = masked(bits, 0xFFFFFFFF);
  v = masked(hn::Or(v, hn::ShiftLeft<16>(v)), 0x0000FFFF0000FFFF);
  v = masked(hn::Or(v, hn::ShiftLeft<8>(v)), 0x00FF00FF00FF00FF);
  v = masked(hn::Or(v, hn::ShiftLeft<4>(v)), 0x0F0F0F0F0F0F0F0F);
  v = masked(hn::Or(v, hn::ShiftLeft<2>(v)), 0x3333333333333333);
  return masked(hn::Or(v, hn::ShiftLeft<1>(v)), 0x5555555555555555);
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE VecU64 load_eights(const std::uint8_t* bytes) {
  std::uint64_t eight;
  std::memcpy(&eight, bytes, sizeof(eight));
  return hn::Set(U64(), eight);
}
HWY_INLINE void store_eights(VecU64 eights, std::uint8_t* bytes) {
  const std::uint64_t eight = hn::GetLane(eights);
  std::memcpy(bytes, &eight, sizeof(eight));
}

// Calls visit(k, digit) for the digits of a group.
template <class Visit>
HWY_INLINE void visit_digits(unsigned group, const Visit& visit) {
  for (std::size_t k = kDigitsPerGroup; k-- > 0; group /= 3) visit(k, group % 3);
}

HWY_INLINE void digits_of(const std::uint8_t* groups, VecU64& sent, VecU64& negative) {
  std::uint64_t sent_bits = 0;
  std::uint64_t negative_bits = 0;
  for (std::size_t byte = 0; byte < kGroupsPerWord; ++byte) {
    visit_digits(groups[byte], [&](std::size_t k, unsigned digit) {
      sent_bits |= std::uint64_t{digit != 1} << (8 * byte + k);
      negative_bits |= std::uint64_t{digit == 0} << (8 * byte + k);
    });
  }
  sent = hn::Set(U64(), sent_bits);
  negative = hn::Set(U64(), negative_bits);
}

HWY_INLINE void unpack_rows(const std::uint8_t* groups, std::size_t stride, std::uint64_t* sent,
                            std::uint64_t* negative) {
  for (std::size_t g = 0; g < kBlockGroups; ++g) {
    visit_digits(groups[g], [&](std::size_t k, unsigned digit) {
      const std::size_t word = k * stride + g / kWordBits;
      if (g % kWordBits == 0) sent[word] = negative[word] = 0;
      sent[word] |= std::uint64_t{digit != 1} << g % kWordBits;
      negative[word] |= std::uint64_t{digit == 0} << g % kWordBits;
    });
  }
}

#else

using MaskU8 = hn::Mask<U8>;

HWY_INLINE VecU64 load_eights(const std::uint8_t* bytes) {
  return hn::BitCast(U64(), hn::LoadU(U8(), bytes));
}
HWY_INLINE void store_eights(VecU64 eights, std::uint8_t* bytes) {
  hn::StoreU(hn::BitCast(U8(), eights), U8(), bytes);
}

// Takes `weight` off the bytes that reach it, and says which do not.
HWY_INLINE MaskU8 take(VecU8& groups, std::uint8_t weight) {
  // Below `weight` the difference wraps around to something larger.
  const VecU8 less = hn::Min(groups, hn::Sub(groups, hn::Set(U8(), weight)));
  const MaskU8 below = hn::Eq(less, groups);
  groups = less;
  return below;
}

// Calls visit(k, is_sent, is_negative) for the digits of groups, highest first.
template <std::size_t kDigit = 0, std::uint8_t kWeight = 81, class Visit>
HWY_INLINE void visit_digits(VecU8 groups, const Visit& visit) {
  const MaskU8 below1 = take(groups, kWeight);
  const MaskU8 below2 = take(groups, kWeight);
  visit(kDigit, hn::Not(hn::Xor(below1, below2)), below1);
  if constexpr (kWeight > 1) visit_digits<kDigit + 1, kWeight / 3>(groups, visit);
}

// Groups, eight in a lane, become bytes of five bits.
HWY_INLINE void digits_of(const std::uint8_t* groups, VecU64& sent, VecU64& negative) {
  VecU8 sent_bits = hn::Zero(U8());
  VecU8 negative_bits = hn::Zero(U8());
  visit_digits(hn::LoadU(U8(), groups),
               [&](std::size_t k, MaskU8 is_sent, MaskU8 is_negative) HWY_ATTR {
                 const VecU8 bit = hn::Set(U8(), static_cast<std::uint8_t>(1U << k));
                 sent_bits = hn::Or(sent_bits, hn::IfThenElseZero(is_sent, bit));
                 negative_bits = hn::Or(negative_bits, hn::IfThenElseZero(is_negative, bit));
               });
  sent = hn::BitCast(U64(), sent_bits);
  negative = hn::BitCast(U64(), negative_bits);
}

HWY_INLINE void unpack_rows(const std::uint8_t* groups, std::size_t stride, std::uint64_t* sent,
                            std::uint64_t* negative) {
  const U8 d;
  for (std::size_t g = 0; g < kBlockGroups; g += hn::Lanes(d)) {
    visit_digits(hn::LoadU(d, groups + g),
                 [&](std::size_t k, MaskU8 is_sent, MaskU8 is_negative) HWY_ATTR {
                   const std::size_t word = k * stride + g / kWordBits;
                   store_mask(d, is_sent, sent + word, g % kWordBits);
                   store_mask(d, is_negative, negative + word, g % kWordBits);
                 });
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace

// Of eight groups in a row, five bits each in the lowest 40 of a word.
void unpack_fives(const std::uint8_t* HWY_RESTRICT groups, std::size_t words,
                  std::uint64_t* HWY_RESTRICT sent, std::uint64_t* HWY_RESTRICT negative) {
  const U64 d;
  for (std::size_t i = 0; i < words; i += hn::Lanes(d)) {
    VecU64 is_sent;
    VecU64 is_negative;
    digits_of(groups + i * kGroupsPerWord, is_sent, is_negative);
    hn::StoreU(join_fives(is_sent), d, sent + i);
    hn::StoreU(join_fives(is_negative), d, negative + i);
  }
}

void unpack_partitions(const std::uint8_t* groups, std::size_t stride, std::uint64_t* sent,
                       std::uint64_t* negative) {
  unpack_rows(groups, stride, sent, negative);
}

void pack_pairs(const std::uint64_t* HWY_RESTRICT sent, const std::uint64_t* HWY_RESTRICT negative,
                std::size_t words, std::uint8_t* HWY_RESTRICT pairs) {
  const U64 d;
  const hn::Rebind<std::uint32_t, U64> half;
  const auto* sent_halves = reinterpret_cast<const std::uint32_t*>(sent);
  const auto* negative_halves = reinterpret_cast<const std::uint32_t*>(negative);
  for (std::size_t i = 0; i < words; i += hn::Lanes(d)) {
    const VecU64 low = hn::PromoteTo(d, hn::LoadU(half, sent_halves + i));
    const VecU64 high = hn::And(low, hn::PromoteTo(d, hn::LoadU(half, negative_halves + i)));
    store_eights(hn::Or(spread_even(low), hn::ShiftLeft<1>(spread_even(high))), pairs + 8 * i);
  }
}

void unpack_pairs(const std::uint8_t* HWY_RESTRICT pairs, std::size_t words,
                  std::uint64_t* HWY_RESTRICT sent, std::uint64_t* HWY_RESTRICT negative) {
  const U64 d;
  const hn::Rebind<std::uint32_t, U64> half;
  auto* sent_halves = reinterpret_cast<std::uint32_t*>(sent);
  auto* negative_halves = reinterpret_cast<std::uint32_t*>(negative);
  for (std::size_t i = 0; i < words; i += hn::Lanes(d)) {
    const VecU64 both = load_eights(pairs + 8 * i);
    hn::StoreU(hn::TruncateTo(half, join_even(both)), half, sent_halves + i);
    hn::StoreU(hn::TruncateTo(half, join_even(hn::ShiftRight<1>(both))), half, negative_halves + i);
  }
}

bool all_at_most(const std::uint8_t* bytes, std::size_t n, std::uint8_t most) {
  const U8 d;
  VecU8 largest = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    largest = hn::Max(largest, hn::LoadU(d, bytes + i));
  }
  for (; i < n; ++i) largest = hn::Max(largest, hn::Set(d, bytes[i]));
  return hn::AllTrue(d, hn::Eq(hn::Max(largest, hn::Set(d, most)), hn::Set(d, most)));
}

bool are_pairs(const std::uint8_t* bytes, std::size_t n) {
  const U8 d;
  const auto high_alone = [&](VecU8 pairs) HWY_ATTR {
    return hn::AndNot(hn::Add(pairs, pairs), hn::And(pairs, hn::Set(d, 0xAA)));
  };
  VecU8 found = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    found = hn::Or(found, high_alone(hn::LoadU(d, bytes + i)));
  }
  for (; i < n; ++i) found = hn::Or(found, high_alone(hn::Set(d, bytes[i])));
  return hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {
namespace {

constexpr std::size_t kBlockWords = kBlockGroups / 8;

using Fives = std::array<std::uint64_t, kBlockWords>;

// Forty bits a word become one row of bits. Whole words are stored, as they will be read: what lies
// across two stores would have to wait for them.
void join(const Fives& fives, std::uint64_t* row) {
  for (std::size_t i = 0; i < kBlockWords; i += 8, row += 5) {
    const std::uint64_t* f = &fives[i];
    row[0] = f[0] | f[1] << 40;
    row[1] = f[1] >> 24 | f[2] << 16 | f[3] << 56;
    row[2] = f[3] >> 8 | f[4] << 32;
    row[3] = f[4] >> 32 | f[5] << 8 | f[6] << 48;
    row[4] = f[6] >> 16 | f[7] << 24;
  }
}

}  // namespace

HWY_EXPORT(unpack_fives);
HWY_EXPORT(unpack_partitions);
HWY_EXPORT(pack_pairs);
HWY_EXPORT(unpack_pairs);
HWY_EXPORT(all_at_most);
HWY_EXPORT(are_pairs);

void unpack_neighbours(const std::uint8_t* groups, std::uint64_t* sent, std::uint64_t* negative) {
  Fives sent_fives;
  Fives negative_fives;
  HWY_DYNAMIC_DISPATCH(unpack_fives)
  (groups, kBlockWords, sent_fives.data(), negative_fives.data());
  join(sent_fives, sent);
  join(negative_fives, negative);
}

void unpack_partitions(const std::uint8_t* groups, std::size_t stride, std::uint64_t* sent,
                       std::uint64_t* negative) {
  HWY_DYNAMIC_DISPATCH(unpack_partitions)(groups, stride, sent, negative);
}

void pack_pairs(const std::uint64_t* sent, const std::uint64_t* negative, std::size_t words,
                std::uint8_t* pairs) {
  HWY_DYNAMIC_DISPATCH(pack_pairs)(sent, negative, words, pairs);
}
void unpack_pairs(const std::uint8_t* pairs, std::size_t words, std::uint64_t* sent,
                  std::uint64_t* negative) {
  HWY_DYNAMIC_DISPATCH(unpack_pairs)(pairs, words, sent, negative);
}
bool all_at_most(const std::uint8_t* bytes, std::size_t n, std::uint8_t most) {
  return HWY_DYNAMIC_DISPATCH(all_at_most)(bytes, n, most);
}
bool are_pairs(const std::uint8_t* bytes, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(are_pairs)(bytes, n);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
