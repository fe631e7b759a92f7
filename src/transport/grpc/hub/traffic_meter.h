// What passes between a node and the others (Traffic). No gRPC here.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "tersewire/grpc_members.h"

namespace tersewire {

// Rates are those of the last 10 s. Not for several threads at once.
class TrafficMeter {
 public:
  using Clock = std::chrono::steady_clock;

  void add_sent(std::size_t bytes, Clock::time_point now) {
    sent_ += bytes;
    last_ = now;
  }
  void add_received(std::size_t bytes) { received_ += bytes; }
  // Some times a second.
  void tick(Clock::time_point now);

  [[nodiscard]] Traffic traffic(Clock::time_point now) const;

 private:
  struct Sample {
    Clock::time_point at;
    std::uint64_t sent;
    std::uint64_t received;
  };

  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::optional<Clock::time_point> last_;
  std::deque<Sample> samples_;  // a second apart
};

}  // namespace tersewire
