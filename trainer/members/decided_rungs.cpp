#include "trainer/members/decided_rungs.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "tersewire/error.h"
#include "trainer/members/node_report.h"

namespace tersewire::trainer {

void DecidedRungs::add(const DecidedSteps& steps) {
  if (steps.first == 0 || steps.last < steps.first || steps.rung >= rungs_) {
    throw Error(ErrorCode::kDataLoss,
                "a codec decision is invalid; start the same program with the same "
                "arguments on every rank");
  }
  {
    const std::lock_guard lock(mutex_);
    Run run{.decided = steps, .steps_before = steps.first - 1};
    const auto at = by_first_.lower_bound(steps.first);
    if (at != by_first_.begin()) {
      run.steps_before = last_step_in(std::prev(at)->second, steps.first - 1);
    }
    by_first_[steps.first] = run;
    known_ = std::max(known_, steps.last);
  }
  changed_.notify_all();
}

// Under the mutex.
const DecidedRungs::Run& DecidedRungs::run_with(std::uint64_t exchange) const {
  const auto after = by_first_.upper_bound(exchange);
  if (after != by_first_.begin() && std::prev(after)->second.decided.last >= exchange) {
    return std::prev(after)->second;
  }
  throw Error(ErrorCode::kFailedPrecondition, "no codec has been decided on for exchange " +
                                                  std::to_string(exchange) +
                                                  "; please report this");
}

std::size_t DecidedRungs::rung(std::uint64_t exchange) const {
  const std::lock_guard lock(mutex_);
  return run_with(exchange).decided.rung;
}

std::uint64_t DecidedRungs::last_step(std::uint64_t exchange) const {
  if (exchange == 0 || steps_.empty()) return exchange;
  const std::lock_guard lock(mutex_);
  return last_step_in(run_with(exchange), exchange);
}

std::uint64_t DecidedRungs::exchange_of(std::uint64_t step) const {
  if (steps_.empty()) return step;
  const std::lock_guard lock(mutex_);
  auto run = by_first_.end();
  while (run != by_first_.begin()) {
    --run;
    if (step <= run->second.steps_before) continue;
    const std::uint64_t rounds = (step - run->second.steps_before - 1) / steps_a_round(run->second);
    return run->first + rounds;
  }
  return step;
}

bool DecidedRungs::knows(std::uint64_t exchange) const {
  const std::lock_guard lock(mutex_);
  return exchange <= known_;
}

bool DecidedRungs::wait(std::uint64_t exchange, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return ended_ || exchange <= known_; });
}

void DecidedRungs::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

std::uint64_t exchanges_up_to(std::uint64_t step, const Job& job, const DecidedRungs* rungs) {
  return rungs != nullptr ? rungs->exchange_of(step) : step / job.steps_a_round();
}

bool DecisionEnd::take(const Incoming& message) {
  if (!begins_as<DecidedSteps>(*message.bytes)) return false;
  const auto steps = parse_report<DecidedSteps>(message, 0);
  if (message.from != 0) {
    throw Error(ErrorCode::kDataLoss,
                "rank " + std::to_string(message.from) +
                    " sent a codec decision, but only rank 0 makes them; start the same program "
                    "with the same arguments on every rank");
  }
  rungs_.add(steps);
  return true;
}

std::optional<Incoming> DecisionEnd::receive(std::chrono::milliseconds timeout) {
  if (auto message = take_first(others_)) return message;
  try {
    return receive_unkept(timeout, [this](const Incoming& message) { return take(message); });
  } catch (...) {
    rungs_.end();
    throw;
  }
}

void DecisionEnd::wait(std::uint64_t exchange, const WaitLimits& limits) {
  await(end(), 0, "the codec of exchange " + std::to_string(exchange), limits,
        [&](std::chrono::milliseconds timeout) { return rungs_.wait(exchange, timeout); });
}

std::size_t DecisionEnd::rung(std::uint64_t exchange, const WaitLimits& limits) {
  while (!rungs_.knows(exchange)) {
    Incoming message = receive_within(end(), limits, "a codec decision from rank 0");
    if (!take(message)) others_.push_back(std::move(message));
  }
  return rungs_.rung(exchange);
}

void decide(Transport& end, DecidedRungs& rungs, const DecidedSteps& steps) {
  rungs.add(steps);
  const SharedBytes message = pack_report(steps);
  for (int rank = 0; rank < end.size(); ++rank) {
    if (rank != end.rank()) end.send(rank, message);
  }
}

}  // namespace tersewire::trainer
