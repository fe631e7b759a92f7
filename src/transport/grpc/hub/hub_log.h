// What a hub has to tell, until somebody asks for it. No gRPC here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tersewire {

// Bounded, whatever comes. Not for several threads at once.
class HubLog {
 public:
  using Clock = std::chrono::steady_clock;

  void add(std::string sentence);
  // Of strangers, who may come as often as they like: one sentence a second, with the number of
  // those that had none.
  void add_stranger(const std::string& sentence, Clock::time_point now = Clock::now());
  std::vector<std::string> take();

 private:
  std::deque<std::string> sentences_;
  Clock::time_point next_stranger_{};
  std::uint64_t unsaid_ = 0;
};

}  // namespace tersewire
