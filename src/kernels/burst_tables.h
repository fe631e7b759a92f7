// How the data of four values in a burst are moved together and apart, by their four tags (a byte).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "burst.h"

namespace tersewire::kernels {

inline constexpr std::size_t kTagBytes = 256;  // values of a byte of tags

// For a table lookup of 16 bytes, aligned for a vector load.
struct alignas(16) ByteShuffle : std::array<std::uint8_t, 16> {};
using ByteShuffles = std::array<ByteShuffle, kTagBytes>;

constexpr BurstTag tag_of(std::size_t tags, std::size_t i) {
  return static_cast<BurstTag>(tags >> 2 * i & 3);
}

// How many bytes of data four values have.
inline constexpr auto kDataBytes = [] {
  std::array<std::uint8_t, kTagBytes> bytes{};
  for (std::size_t tags = 0; tags < kTagBytes; ++tags) {
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[tags] = static_cast<std::uint8_t>(bytes[tags] + data_bytes(tag_of(tags, i)));
    }
  }
  return bytes;
}();

// The same for two values, by their four bits of tags: for a table lookup of 16 bytes.
inline constexpr auto kDataBytesOfTwo = [] {
  ByteShuffle bytes{};
  for (std::size_t tags = 0; tags < bytes.size(); ++tags) bytes[tags] = kDataBytes[tags];
  return bytes;
}();

// From four 32-bit lanes, with data in their low bytes, to bytes in a row.
inline constexpr auto kGather = [] {
  ByteShuffles shuffles{};
  for (std::size_t tags = 0; tags < kTagBytes; ++tags) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t k = 0; k < data_bytes(tag_of(tags, i)); ++k) {
        shuffles[tags][at++] = static_cast<std::uint8_t>(4 * i + k);
      }
    }
  }
  return shuffles;
}();

// Back into lanes, but to their high bytes, so that every sign is a lane's highest bit. The other
// bytes become 0.
inline constexpr auto kScatter = [] {
  ByteShuffles shuffles{};
  for (std::size_t tags = 0; tags < kTagBytes; ++tags) {
    shuffles[tags].fill(0x80);
    std::size_t at = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t bytes = data_bytes(tag_of(tags, i));
      for (std::size_t k = 4 - bytes; k < 4; ++k) {
        shuffles[tags][4 * i + k] = static_cast<std::uint8_t>(at++);
      }
    }
  }
  return shuffles;
}();

}  // namespace tersewire::kernels
