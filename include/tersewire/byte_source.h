// A sequential source of bytes: a file, a pipe, or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tersewire {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Puts the next bytes at the beginning of `out`, which is not empty, and returns how many: at
  // least one, unless there are no more. May throw anything.
  virtual std::size_t read(std::span<std::byte> out) = 0;

  // How many are still to come, if known.
  [[nodiscard]] virtual std::optional<std::uint64_t> left() const { return std::nullopt; }
};

}  // namespace tersewire
