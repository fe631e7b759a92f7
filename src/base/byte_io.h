// Reading and writing little-endian fields and varints (spec/wire-format.md).
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "tersewire/bytes.h"

namespace tersewire {

static_assert(std::endian::native == std::endian::little,
              "payloads are written as they lie in memory; a big-endian port must swap them");

inline constexpr std::size_t kMaxVarintBytes = 10;

// As inner loops take them.
inline const std::uint8_t* as_u8(ByteView bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

// Reads fields off the front of a byte sequence, checking each against what is left. Offsets in
// its errors count from `base`, the place of the sequence in what the user knows.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes, std::size_t base = 0) : bytes_(bytes), base_(base) {}

  [[nodiscard]] std::size_t offset() const noexcept { return base_ + at_; }
  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  // A field of T's size; `what` names it in the error.
  template <typename T>
  requires std::is_trivially_copyable_v<T> T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  // The next `bytes` bytes.
  ByteView take(std::size_t bytes, std::string_view what);
  // A varint of at most `limit`, in its shortest form.
  std::uint64_t varint(std::uint64_t limit, std::string_view what);

 private:
  ByteView bytes_;
  std::size_t base_;
  std::size_t at_ = 0;
};

void append(Bytes& out, const void* data, std::size_t bytes);

template <typename T>
requires std::is_trivially_copyable_v<T>
void append_value(Bytes& out, T value) { append(out, &value, sizeof(T)); }

constexpr std::size_t varint_bytes(std::uint64_t value) {
  return (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7;
}
void append_varint(Bytes& out, std::uint64_t value);

}  // namespace tersewire
