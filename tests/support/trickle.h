// Bytes in memory that come a few at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "tersewire/byte_source.h"
#include "tersewire/bytes.h"

namespace tersewire {

class Trickle : public ByteSource {
 public:
  explicit Trickle(ByteView bytes, std::size_t most = std::numeric_limits<std::size_t>::max(),
                   bool says_left = false)
      : rest_(bytes), most_(most), says_left_(says_left) {}

  std::size_t read(std::span<std::byte> out) override {
    const std::size_t count = std::min({rest_.size(), out.size(), most_});
    if (count > 0) std::memcpy(out.data(), rest_.data(), count);
    rest_ = rest_.subspan(count);
    return count;
  }

  [[nodiscard]] std::optional<std::uint64_t> left() const override {
    if (!says_left_) return std::nullopt;
    return rest_.size();
  }

 private:
  ByteView rest_;
  std::size_t most_;
  bool says_left_;
};

}  // namespace tersewire
