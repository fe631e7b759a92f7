#include "apps/bench/round_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::bench {
namespace {

// The exchange's messages begin with "TW".
constexpr std::string_view kMark = "TB";

SharedBytes packed(const std::string& text) {
  Bytes bytes(kMark.size() + text.size());
  std::memcpy(bytes.data(), kMark.data(), kMark.size());
  std::memcpy(bytes.data() + kMark.size(), text.data(), text.size());
  return std::make_shared<const Bytes>(std::move(bytes));
}

bool is_packed(const Bytes& bytes) {
  return bytes.size() >= kMark.size() && std::memcmp(bytes.data(), kMark.data(), kMark.size()) == 0;
}

std::string unpacked(const Bytes& bytes) {
  std::string text(bytes.size() - kMark.size(), '\0');
  std::memcpy(text.data(), bytes.data() + kMark.size(), text.size());
  return text;
}

}  // namespace

RoundTransport::RoundTransport(Transport& end)
    : end_(end), told_(static_cast<std::size_t>(end.size())) {}

std::vector<std::string> RoundTransport::meet(const std::string& text, const WaitLimits& limits) {
  const SharedBytes message = packed(text);
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    end_.send(to, message);
    told_bytes_sent_ += message->size();
  }
  told_[static_cast<std::size_t>(rank())].push_back(text);
  const auto silent = [&] { return std::ranges::find_if(told_, &Texts::empty); };
  while (silent() != told_.end()) {
    sort_in(receive_within(
        end_, limits, fmt::format("rank {} to meet rank {}", silent() - told_.begin(), rank())));
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
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (of_this_round_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    auto message = end_.receive(std::max(left, std::chrono::milliseconds(0)));
    if (!message) return std::nullopt;
    sort_in(std::move(*message));
  }
  Incoming message = std::move(of_this_round_.front());
  of_this_round_.pop_front();
  return message;
}

void RoundTransport::sort_in(Incoming message) {
  Texts& told = told_.at(static_cast<std::size_t>(message.from));
  // A node that has told its text may have gone on to the next job, but ends that only with this
  // node's text.
  if (is_packed(*message.bytes)) {
    told_bytes_received_ += message.bytes->size();
    told.push_back(unpacked(*message.bytes));
  } else {
    (told.empty() ? of_this_round_ : of_the_next_).push_back(std::move(message));
  }
}

}  // namespace tersewire::bench
