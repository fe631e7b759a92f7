#include "link_faults.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "random_words.h"

namespace tersewire {
namespace {

constexpr double kFrameBits = 8 * 1514;
constexpr std::uint64_t kDuplicateAcknowledgements = 3;
constexpr double kLeastVariationSeconds = 0.2;

// Numbers in [0, 1), of one message.
class Draws {
 public:
  Draws(std::uint64_t seed, const LinkFaults::Message& message)
      : stream_{.seed = seed,
                .sender = static_cast<std::uint32_t>(message.from),
                .tensor = static_cast<std::uint32_t>(message.to),
                .step = message.number} {}

  double next() {
    const std::size_t at = taken_ % words_.size();
    if (at == 0) kernels::random_words(stream_, taken_, words_.size(), words_.data());
    ++taken_;
    return words_[at] * 0x1p-32;
  }

 private:
  kernels::RandomStream stream_;
  std::array<std::uint32_t, 64> words_{};
  std::uint64_t taken_ = 0;
};

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::nanoseconds(std::llround(1e9 * seconds));
}

}  // namespace

LinkFaults::LinkFaults(const ModelledLinks& links)
    : links_(links),
      frame_seconds_(links.bits_per_second > 0 ? kFrameBits / links.bits_per_second : 0),
      loss_on_two_links_(links.loss * (2 - links.loss)) {
  if (links.loss == 0) return;
  const double q = loss_on_two_links_;
  const double round_trip = 4 * links.delay_seconds;
  held_seconds_ = std::max(round_trip, round_trip * std::sqrt(2 / (3 * q)) - frame_seconds_ / q);
  last_held_seconds_ = std::max(held_seconds_, round_trip + kLeastVariationSeconds);
}

LinkFaults::Lateness LinkFaults::of(const Message& message) const {
  if (!has_chance()) return {.delay = nanoseconds(2 * links_.delay_seconds)};
  Draws draws(links_.seed, message);
  const auto delay = [&] {
    const double drawn = links_.jitter_seconds * (2 * draws.next() - 1);
    return std::max(links_.delay_seconds + drawn, 0.0);
  };
  double late = 0;
  double held = 0;
  for (std::uint64_t left = message.frames; left > 0; --left) {
    late = std::max(late - frame_seconds_, delay() + delay());
    const bool is_last = left <= kDuplicateAcknowledgements;
    while (draws.next() < loss_on_two_links_) held += is_last ? last_held_seconds_ : held_seconds_;
  }
  return {.delay = nanoseconds(late), .held = nanoseconds(held)};
}

}  // namespace tersewire
