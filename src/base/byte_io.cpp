#include "byte_io.h"

#include "errors.h"

namespace tersewire {

ByteView ByteReader::take(std::size_t bytes, std::string_view what) {
  if (bytes > left()) {
    fail(ErrorCode::kDataLoss, "it ends at offset {}, inside the {} that begins at {}",
         base_ + bytes_.size(), what, offset());
  }
  const ByteView taken = bytes_.subspan(at_, bytes);
  at_ += bytes;
  return taken;
}

std::uint64_t ByteReader::varint(std::uint64_t limit, std::string_view what) {
  const std::size_t start = offset();
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 7 * kMaxVarintBytes; shift += 7) {
    const auto byte = read<std::uint8_t>(what);
    const std::uint64_t bits = byte & 0x7Fu;
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if ((byte & 0x80u) != 0) continue;
    if (bits == 0 && shift > 0) {
      fail(ErrorCode::kDataLoss, "the {} at offset {} is not in its shortest form", what, start);
    }
    if (value > limit) break;
    return value;
  }
  fail(ErrorCode::kDataLoss, "the {} at offset {} is above its limit of {}", what, start, limit);
}

void append(Bytes& out, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  // Not insert(): through the allocator's construct() that would go byte by byte.
  const std::size_t start = out.size();
  out.resize(start + bytes);
  std::memcpy(out.data() + start, data, bytes);
}

void append_varint(Bytes& out, std::uint64_t value) {
  std::byte buffer[kMaxVarintBytes];
  std::byte* end = buffer;
  for (; value >= 0x80; value >>= 7) {
    *end++ = static_cast<std::byte>((value & 0x7F) | 0x80);
  }
  *end++ = static_cast<std::byte>(value);
  append(out, buffer, static_cast<std::size_t>(end - buffer));
}

}  // namespace tersewire
