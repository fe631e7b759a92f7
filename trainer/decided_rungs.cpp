#include "trainer/decided_rungs.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tersewire/error.h"
#include "trainer/node_report.h"

namespace tersewire::trainer {

void DecidedRungs::add(const DecidedSteps& steps) {
  if (steps.last < steps.first || steps.rung >= rungs_) {
    throw Error(ErrorCode::kDataLoss,
                "a decision on codecs makes no sense; start the same program with the same "
                "arguments on every rank");
  }
  {
    const std::lock_guard lock(mutex_);
    by_first_[steps.first] = steps;
    known_ = std::max(known_, steps.last);
  }
  changed_.notify_all();
}

std::size_t DecidedRungs::rung(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto after = by_first_.upper_bound(step);
  if (after != by_first_.begin() && std::prev(after)->second.last >= step) {
    return std::prev(after)->second.rung;
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "no codec has been decided on for step " + std::to_string(step));
}

bool DecidedRungs::knows(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  return step <= known_;
}

bool DecidedRungs::wait(std::uint64_t step, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return ended_ || step <= known_; });
}

void DecidedRungs::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

bool DecisionEnd::take(const Incoming& message) {
  const Bytes& bytes = *message.bytes;
  if (bytes.size() < sizeof(DecidedSteps::kKind) ||
      std::memcmp(bytes.data(), &DecidedSteps::kKind, sizeof(DecidedSteps::kKind)) != 0) {
    return false;
  }
  const auto steps = parse_report<DecidedSteps>(message, 0);
  if (message.from != 0) {
    throw Error(ErrorCode::kDataLoss,
                "rank " + std::to_string(message.from) +
                    " sent a decision on codecs, which rank 0 alone makes; start the same program "
                    "with the same arguments on every rank");
  }
  rungs_.add(steps);
  return true;
}

std::optional<Incoming> DecisionEnd::receive(std::chrono::milliseconds timeout) {
  if (!others_.empty()) {
    Incoming message = std::move(others_.front());
    others_.pop_front();
    return message;
  }
  try {
    return receive_unkept(timeout, [this](const Incoming& message) { return take(message); });
  } catch (...) {
    rungs_.end();
    throw;
  }
}

void DecisionEnd::wait(std::uint64_t step, const WaitLimits& limits) {
  constexpr std::chrono::milliseconds kLook(250);
  const auto begin = std::chrono::steady_clock::now();
  while (!rungs_.wait(step, kLook)) {
    const Peer decider = end().peer(0);
    if (decider.gone) {
      throw Error(ErrorCode::kUnavailable,
                  "rank 0, which decides on codecs, " + *decider.gone + "; start the job again");
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - decider.heard <= limits.deadline && now - begin <= limits.progress_limit) continue;
    throw Error(ErrorCode::kDeadlineExceeded,
                "rank 0 has not said in time which codec is for step " + std::to_string(step) +
                    "; look whether it hangs, or give a longer --deadline or --progress-limit");
  }
}

std::size_t DecisionEnd::rung(std::uint64_t step, const WaitLimits& limits) {
  while (!rungs_.knows(step)) {
    Incoming message = receive_within(end(), limits, "a decision on codecs of rank 0");
    if (!take(message)) others_.push_back(std::move(message));
  }
  return rungs_.rung(step);
}

void decide(Transport& end, DecidedRungs& rungs, const DecidedSteps& steps) {
  rungs.add(steps);
  const SharedBytes message = pack_report(steps);
  for (int rank = 0; rank < end.size(); ++rank) {
    if (rank != end.rank()) end.send(rank, message);
  }
}

}  // namespace tersewire::trainer
