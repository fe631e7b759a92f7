#include "ternary_pack.h"

#include <cstring>

#include "kernels.h"

namespace tersewire::kernels {
namespace {

constexpr std::size_t kGroupsPerWord = 8;
constexpr std::size_t kBlockWords = kBlockGroups / kGroupsPerWord;
constexpr std::uint64_t kOnes = 0x0101010101010101;

static_assert(kBlockWords % kMaxWordLanes == 0);

using Fives = std::array<std::uint64_t, kBlockWords>;

// Forty bits a word, the digits of eight groups, where the kernel expects them.
template <std::size_t kWords>
Fives split_fives(const std::array<std::uint64_t, kWords>& bits) {
  Fives fives;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(bits.data());
  for (std::size_t i = 0; i < kBlockWords; ++i) {
    std::memcpy(&fives[i], bytes + i * kDigitsPerGroup, sizeof(std::uint64_t));
  }
  return fives;
}

// 8 bits become 8 bytes of 0 or 1.
std::uint64_t spread_bits(std::uint64_t bits) {
  const std::uint64_t placed = (bits * kOnes) & 0x8040201008040201;
  return ((placed + 0x7F * kOnes) >> 7) & kOnes;
}

std::uint8_t byte_of(const std::uint64_t* bits, std::size_t index) {
  return reinterpret_cast<const std::uint8_t*>(bits)[index];
}

}  // namespace

void pack_neighbours(const DigitBits& bits, PackedBlock& out) {
  const Fives sent = split_fives(bits.sent);
  const Fives negative = split_fives(bits.negative);
  pack_fives(sent.data(), negative.data(), kBlockWords,
             reinterpret_cast<std::uint64_t*>(out.groups.data()));
}

void pack_partitions(const PartitionBits& bits, PackedBlock& out) {
  for (std::size_t i = 0; i < kBlockWords; ++i) {
    std::uint64_t word = 0;
    for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
      const std::uint64_t sent = spread_bits(byte_of(bits.sent[k].data(), i));
      const std::uint64_t minus = sent & spread_bits(byte_of(bits.negative[k].data(), i));
      word = word * 3 + kOnes + sent - 2 * minus;
    }
    std::memcpy(out.groups.data() + i * kGroupsPerWord, &word, sizeof(word));
  }
}

}  // namespace tersewire::kernels
