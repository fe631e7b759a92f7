#include "silence_limit.h"

#include <fmt/format.h>

#include <algorithm>

namespace tersewire {
namespace {

constexpr SilenceLimit::Duration kAtFirst = std::chrono::seconds(30);
constexpr SilenceLimit::Duration kLeast = std::chrono::seconds(10);
constexpr SilenceLimit::Duration kMost = std::chrono::seconds(120);
constexpr int kFactor = 20;
constexpr std::size_t kKept = 10000;
constexpr std::size_t kLookEvery = 100;

double in_seconds(SilenceLimit::Duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

SilenceLimit::SilenceLimit(std::optional<std::chrono::milliseconds> fixed)
    : is_fixed_(fixed.has_value()), limit_(fixed ? Duration(*fixed) : kAtFirst) {}

void SilenceLimit::note(Duration silence) {
  if (is_fixed_) return;
  if (silences_.size() < kKept) {
    silences_.push_back(silence);
  } else {
    silences_[noted_ % kKept] = silence;
  }
  if (++noted_ % kLookEvery != 0) return;
  std::vector<Duration> sorted = silences_;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 99 / 100);
  std::ranges::nth_element(sorted, at);
  quantile_ = *at;
  limit_ = std::clamp(kFactor * quantile_, kLeast, kMost);
}

std::string SilenceLimit::reason() const {
  if (is_fixed_) return "";
  if (noted_ < kLookEvery) {
    return fmt::format(", the limit until {} silences of members have been measured", kLookEvery);
  }
  return fmt::format(
      ", where 99 of 100 signs of life came within {:.2g} s of the last ({} times that, from {} to "
      "{} "
      "s)",
      in_seconds(quantile_), kFactor, in_seconds(kLeast), in_seconds(kMost));
}

}  // namespace tersewire
