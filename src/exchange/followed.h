// What a receiver has added up of a part whose senders send differences (Encoder::
// sends_differences()): what they follow, as far as it was sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tersewire/codec.h"

namespace tersewire {

// A payload that is no difference: of a gradient that is not finite, or of a warm-up's step.
inline bool is_whole(CodecId codec) { return codec == CodecId::kFp32; }

// One thread at a time.
class Followed {
 public:
  Followed() = default;
  explicit Followed(std::size_t elems) : sum_(elems) {}

  // Whether the part is followed at all.
  [[nodiscard]] explicit operator bool() const { return !sum_.empty(); }
  // Turns a mean of differences into the mean of what the senders follow.
  void add(std::span<float> mean) {
    std::ranges::transform(sum_, mean, sum_.begin(), std::plus<>());
    std::ranges::copy(sum_, mean.begin());
  }
  // All of its state.
  [[nodiscard]] std::span<float> values() { return sum_; }

 private:
  std::vector<float> sum_;
};

}  // namespace tersewire
