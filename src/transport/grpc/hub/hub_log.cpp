#include "hub_log.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace tersewire {
namespace {

constexpr std::size_t kMostSentences = 1000;
constexpr std::chrono::seconds kStrangersEvery(1);

}  // namespace

void HubLog::add(std::string sentence) {
  if (sentences_.size() == kMostSentences) sentences_.pop_front();
  sentences_.push_back(std::move(sentence));
}

void HubLog::add_stranger(const std::string& sentence, Clock::time_point now) {
  if (now < next_stranger_) {
    ++unsaid_;
    return;
  }
  next_stranger_ = now + kStrangersEvery;
  const std::uint64_t unsaid = std::exchange(unsaid_, 0);
  add(unsaid == 0 ? sentence : fmt::format("{} (and {} before)", sentence, unsaid));
}

std::vector<std::string> HubLog::take() {
  std::vector<std::string> all(std::make_move_iterator(sentences_.begin()),
                               std::make_move_iterator(sentences_.end()));
  sentences_.clear();
  return all;
}

}  // namespace tersewire
