#include "bit_fields.h"

namespace tersewire::kernels {

void write_fields(const std::uint16_t* fields, std::size_t n, unsigned width, std::uint8_t* out) {
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    pending |= std::uint64_t{fields[i]} << pending_bits;
    for (pending_bits += width; pending_bits >= 8; pending_bits -= 8) {
      *out++ = static_cast<std::uint8_t>(pending);
      pending >>= 8;
    }
  }
  if (pending_bits > 0) *out = static_cast<std::uint8_t>(pending);
}

void read_fields(const std::uint8_t* bytes, std::size_t n, unsigned width, std::uint16_t* fields) {
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (; pending_bits < width; pending_bits += 8)
      pending |= std::uint64_t{*bytes++} << pending_bits;
    fields[i] = static_cast<std::uint16_t>(pending & mask);
    pending >>= width;
    pending_bits -= width;
  }
}

}  // namespace tersewire::kernels
