// Bit streams of fields of equal width, the least significant bit first (spec/wire-format.md, "Bit
// streams"). Plain loops, no vectors. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// Writes n fields of `width` bits, 1 to 16, from a byte's beginning: ceil(n * width / 8) bytes, the
// last one's unused bits 0. Values must fit.
void write_fields(const std::uint16_t* fields, std::size_t n, unsigned width, std::uint8_t* out);

// Reads n fields; byte by byte as write_fields() wrote them.
void read_fields(const std::uint8_t* bytes, std::size_t n, unsigned width, std::uint16_t* fields);

}  // namespace tersewire::kernels
