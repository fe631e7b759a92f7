#include "apps/bench/round_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::bench {
namespace {

// The exchange's messages begin with "TW".
constexpr std::string_view kMark = "TB";
constexpr std::string_view kHere = "TH";
// How often peers are looked at.
constexpr std::chrono::milliseconds kLook(100);

SharedBytes packed(std::string_view mark, std::string_view text) {
  Bytes bytes(mark.size() + text.size());
  std::memcpy(bytes.data(), mark.data(), mark.size());
  std::memcpy(bytes.data() + mark.size(), text.data(), text.size());
  return std::make_shared<const Bytes>(std::move(bytes));
}

bool begins_with(std::string_view mark, const Bytes& bytes) {
  return bytes.size() >= mark.size() && std::memcmp(bytes.data(), mark.data(), mark.size()) == 0;
}

std::string unpacked(const Bytes& bytes) {
  std::string text(bytes.size() - kMark.size(), '\0');
  std::memcpy(text.data(), bytes.data() + kMark.size(), text.size());
  return text;
}

}  // namespace

RoundTransport::RoundTransport(Transport& end)
    : PassingTransport(end), told_(static_cast<std::size_t>(end.size())), here_(told_.size(), 0) {}

void RoundTransport::send(int to, SharedBytes bytes) {
  sent_ += bytes->size();
  PassingTransport::send(to, std::move(bytes));
}

void RoundTransport::await(int nodes, const WaitLimits& limits) {
  const SharedBytes text = packed(kHere, "");
  for (int to = 0; to < nodes; ++to) {
    if (to != rank()) end().send(to, text);
  }
  const auto began = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  ++here_[static_cast<std::size_t>(rank())];
  const auto all = std::span(here_).first(static_cast<std::size_t>(nodes));
  const auto absent = [&] { return std::ranges::find(all, 0); };
  while (!came_.wait_for(lock, kLook, [&] { return absent() == all.end(); })) {
    const auto now = std::chrono::steady_clock::now();
    const int missing = static_cast<int>(absent() - all.begin());
    const Peer absentee = peer(missing);  // throws where the job is over
    if (!absentee.gone && now - absentee.heard < limits.deadline &&
        now - began < limits.progress_limit) {
      continue;
    }
    throw Error(
        ErrorCode::kDeadlineExceeded,
        fmt::format("rank {} waits for rank {} to end the same step; check whether it is running",
                    rank(), missing));
  }
  for (int& times : all) --times;
}

std::vector<std::string> RoundTransport::meet(const std::string& text, const WaitLimits& limits) {
  const SharedBytes message = packed(kMark, text);
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    end().send(to, message);
  }
  told_[static_cast<std::size_t>(rank())].push_back(text);
  const auto silent = [&] { return std::ranges::find_if(told_, &Texts::empty); };
  while (silent() != told_.end()) {
    Incoming incoming = receive_within(
        end(), limits, fmt::format("rank {} to meet rank {}", silent() - told_.begin(), rank()));
    if (!keep(incoming)) of_this_round_.push_back(std::move(incoming));
  }
  std::vector<std::string> texts;
  for (Texts& told : told_) {
    texts.push_back(std::move(told.front()));
    told.pop_front();
  }
  of_this_round_ = std::exchange(of_the_next_, {});
  return texts;
}

std::optional<Incoming> RoundTransport::receive(std::chrono::milliseconds timeout) {
  if (auto message = take_first(of_this_round_)) return message;
  return receive_unkept(timeout, [this](Incoming& message) { return keep(message); });
}

bool RoundTransport::keep(Incoming& message) {
  const auto from = static_cast<std::size_t>(message.from);
  if (begins_with(kHere, *message.bytes)) {
    const std::lock_guard lock(mutex_);
    ++here_.at(from);
    came_.notify_all();
    return true;
  }
  Texts& told = told_.at(from);
  // A node that has told its text may have gone on to the next job, but ends that only with this
  // node's text.
  if (begins_with(kMark, *message.bytes)) {
    told.push_back(unpacked(*message.bytes));
    return true;
  }
  received_ += message.bytes->size();
  if (told.empty()) return false;
  of_the_next_.push_back(std::move(message));
  return true;
}

}  // namespace tersewire::bench
