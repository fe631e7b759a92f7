#include "traffic_meter.h"

#include <algorithm>

namespace tersewire {
namespace {

constexpr std::chrono::seconds kSampleEvery(1);
constexpr std::chrono::seconds kRateOver(10);

}  // namespace

void TrafficMeter::tick(Clock::time_point now) {
  if (!samples_.empty() && now - samples_.back().at < kSampleEvery) return;
  samples_.push_back({.at = now, .sent = sent_, .received = received_});
  while (now - samples_.front().at > kRateOver) samples_.pop_front();
}

Traffic TrafficMeter::traffic(Clock::time_point now) const {
  Traffic traffic{.sent_bytes = sent_, .received_bytes = received_};
  if (last_) {
    const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(now - *last_);
    traffic.quiet_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(quiet.count(), 0));
  }
  if (samples_.empty() || samples_.front().at >= now) return traffic;
  const Sample& first = samples_.front();
  const double seconds = std::chrono::duration<double>(now - first.at).count();
  const auto rate = [&](std::uint64_t since) {
    return static_cast<std::uint64_t>(static_cast<double>(since) / seconds);
  };
  traffic.sent_rate = rate(sent_ - first.sent);
  traffic.received_rate = rate(received_ - first.received);
  return traffic;
}

}  // namespace tersewire
