// Base-3^5 encoding (3LC section 3.2): five digits of 0, 1 or 2 in a byte, a block at a time.
// Digits come as two bit arrays, as quantize_ternary() makes them: not zero, and below zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

inline constexpr std::size_t kDigitsPerGroup = 5;
inline constexpr std::uint8_t kZeroGroup = 121;  // five zeros
inline constexpr std::uint8_t kMaxGroup = 242;

// Groups that are packed at once: all that a block touches stays in the first cache, and packing it
// takes no longer than memory takes to deliver the next.
inline constexpr std::size_t kBlockGroups = 256;
inline constexpr std::size_t kBlockElems = kBlockGroups * kDigitsPerGroup;

// A block's groups; as many as were asked for are meaningful.
struct PackedBlock {
  alignas(64) std::array<std::uint8_t, kBlockGroups> groups;
};

// The digits of a block in order: bit i is element i's. The word at the end may be read.
struct DigitBits {
  std::array<std::uint64_t, kBlockElems / 64 + 1> sent{};
  std::array<std::uint64_t, kBlockElems / 64 + 1> negative{};
};

// Packs a block whose digits are neighbours: digit k of group g is bit 5 g + k.
void pack_neighbours(const DigitBits& bits, PackedBlock& out);

// The digits of a block as five arrays.
struct PartitionBits {
  std::array<std::array<std::uint64_t, kBlockGroups / 64>, kDigitsPerGroup> sent{};
  std::array<std::array<std::uint64_t, kBlockGroups / 64>, kDigitsPerGroup> negative{};
};

// Packs a block whose digits come from five partitions: digit k of group g is bit g of array k.
void pack_partitions(const PartitionBits& bits, PackedBlock& out);

}  // namespace tersewire::kernels
