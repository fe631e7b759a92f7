// The way back from packed digits: groups of five in a byte (3LC section 3.2), or two bits each, to
// bit arrays as ternary_pack.h has them. Any thread; pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ternary_pack.h"

namespace tersewire::kernels {

// Whether no byte is above `most`.
bool all_at_most(const std::uint8_t* bytes, std::size_t n, std::uint8_t most);

// Unpack kBlockGroups groups whose digits are neighbours, into one row of bits, or come from five
// partitions, into five rows that begin `stride` words apart: bits as ternary_pack.h has them. A
// byte above kMaxGroup becomes digits that mean nothing.
void unpack_neighbours(const std::uint8_t* groups, std::uint64_t* sent, std::uint64_t* negative);
void unpack_partitions(const std::uint8_t* groups, std::size_t stride, std::uint64_t* sent,
                       std::uint64_t* negative);

// Digits of two bits, element i's in bits 2 i and 2 i + 1: 0, or 1 for 1, or 3 for -1.
// 32 * words of them, 8 bytes a word, become bits and come back.
void pack_pairs(const std::uint64_t* sent, const std::uint64_t* negative, std::size_t words,
                std::uint8_t* pairs);
void unpack_pairs(const std::uint8_t* pairs, std::size_t words, std::uint64_t* sent,
                  std::uint64_t* negative);
// Whether no digit is 2.
bool are_pairs(const std::uint8_t* bytes, std::size_t n);

}  // namespace tersewire::kernels
