// Codes in bit streams of fields of equal width, the least significant bit first
// (spec/wire-format.md, "Bit streams"). Any alignment, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

inline constexpr unsigned kMaxLevelBits = 17;

// The bytes of n fields.
constexpr std::size_t level_field_bytes(std::size_t n, unsigned bits) { return (n * bits + 7) / 8; }

// n is at most 1024 in both; `bits` is from 1 to kMaxLevelBits.
inline constexpr std::size_t kMaxLevelFields = 1024;
// Every code is below 2^bits. Bits left over in the last byte become 0.
void pack_level_fields(const std::uint32_t* codes, std::size_t n, unsigned bits, std::uint8_t* out);
void unpack_level_fields(const std::uint8_t* bytes, std::size_t n, unsigned bits,
                         std::uint32_t* codes);

}  // namespace tersewire::kernels
