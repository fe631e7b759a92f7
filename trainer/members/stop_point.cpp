#include "trainer/members/stop_point.h"

#include <algorithm>
#include <utility>

#include "tersewire/error.h"
#include "trainer/members/node_report.h"

namespace tersewire::trainer {

void StopPoint::agree_over(Transport& end, const WaitLimits& limits,
                           std::function<void(std::uint64_t)> on_ending) {
  end_ = &end;
  limits_ = limits;
  on_ending_ = std::move(on_ending);
}

void StopPoint::check() const {
  if (all_here_ || agrees() || !asked()) return;
  throw Error(ErrorCode::kCancelled,
              "the run was interrupted; a job of several processes then ends at once, without a "
              "summary");
}

bool StopPoint::passed(std::uint64_t step) {
  check();
  wish();
  std::unique_lock lock(mutex_);
  if (all_here_) {
    if (asked()) {
      if (!chosen_) asker_ = 0;
      choose_with_state(step);
    }
  } else if (leads()) {
    if (asker_ && !chosen_ && step <= last_) ask_all(lock, step);
  } else if (asking_) {
    await(lock, 0, "the last step of the run", [this] { return !asking_; });
  }
  newest_ = std::max(newest_, step);
  return step > last_;
}

void StopPoint::end(std::uint64_t step, const std::string& sentence) {
  if (!all_here_) throw Error(ErrorCode::kOutOfRange, sentence);
  const std::lock_guard lock(mutex_);
  if (ended_by_.empty()) ended_by_ = sentence;
  choose(std::max(newest_, step));
}

// Under the mutex.
void StopPoint::choose(std::uint64_t step) {
  if (chosen_) return;
  chosen_ = true;
  cut_short_ = step < last_;
  last_ = std::min(last_, step);
}

// A step in which no worker can have pushed: none has begun it but this one, whose own it may be.
void StopPoint::choose_with_state(std::uint64_t step) {
  if (chosen_) return;
  if (state_every_ == 0) return choose(std::max(newest_, step));
  const std::uint64_t next = std::max(newest_ + 1, step) + state_every_ - 1;
  const std::uint64_t last = next / state_every_ * state_every_;
  if (last < last_) state_after_ = last;
  choose(last);
}

std::uint64_t StopPoint::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::string StopPoint::ended_by() const {
  const std::lock_guard lock(mutex_);
  return ended_by_;
}

std::optional<int> StopPoint::asker() const {
  const std::lock_guard lock(mutex_);
  return cut_short_ ? asker_ : std::nullopt;
}

// --- Between processes.

// Once, where this node is asked to end the run.
void StopPoint::wish() {
  if (end_ == nullptr || !agrees() || !asked() || has_wished_.exchange(true)) return;
  if (!leads()) return say(0, {.word = StopWord::kWish});
  const std::lock_guard lock(mutex_);
  if (!asker_) asker_ = 0;
}

// By worker 0's thread, which pushes nothing meanwhile.
void StopPoint::ask_all(std::unique_lock<std::mutex>& lock, std::uint64_t step) {
  asking_ = true;
  answered_.assign(static_cast<std::size_t>(end_->size()), false);
  say_to_all({.word = StopWord::kAsk});
  for (int rank = 1; rank < end_->size(); ++rank) {
    await(lock, rank, "its progress", [&] { return answered_[static_cast<std::size_t>(rank)]; });
  }
  if (failed_) return;
  asking_ = false;
  choose_with_state(step);
  say_to_all(
      {.word = StopWord::kLast, .step = last_, .asker = static_cast<std::uint64_t>(*asker_)});
  if (on_ending_) on_ending_(last_);
}

// Returns, too, where nothing more is received: whatever the node does next says why.
void StopPoint::await(std::unique_lock<std::mutex>& lock, int rank, const char* awaited,
                      const std::function<bool()>& is_here) {
  trainer::await(*end_, rank, awaited, limits_, [&](std::chrono::milliseconds timeout) {
    return changed_.wait_for(lock, timeout, [&] { return failed_ || is_here(); });
  });
}

void StopPoint::say(int to, const StopMessage& message) { end_->send(to, pack_report(message)); }

void StopPoint::say_to_all(const StopMessage& message) {
  for (int rank = 1; rank < end_->size(); ++rank) say(rank, message);
}

// Whether it may be said now, by that node.
bool StopPoint::makes_sense(int from, const StopMessage& message) const {
  const std::uint64_t step = message.step;
  switch (message.word) {
    case StopWord::kWish:
      return leads();
    case StopWord::kAsk:
      return from == 0 && !leads() && !asking_ && !chosen_ && state_every_ > 0;
    case StopWord::kAnswer:
      return leads() && asking_ && !answered_[static_cast<std::size_t>(from)] && step <= last_ + 1;
    case StopWord::kLast:
      return from == 0 && asking_ && step <= last_ && (step == last_ || step >= newest_) &&
             (step == last_ || step % state_every_ == 0) &&
             message.asker < static_cast<std::uint64_t>(end_->size());
  }
  return false;
}

void StopPoint::take(int from, const StopMessage& message) {
  const std::lock_guard lock(mutex_);
  if (!makes_sense(from, message)) {
    throw Error(ErrorCode::kDataLoss,
                "rank " + std::to_string(from) +
                    " sent an invalid message about the end of the run; start the same program "
                    "with the same arguments on every rank");
  }
  switch (message.word) {
    case StopWord::kWish:
      if (!asker_) asker_ = from;
      break;
    case StopWord::kAsk:
      asking_ = true;
      say(0, {.word = StopWord::kAnswer, .step = newest_});
      break;
    case StopWord::kAnswer:
      answered_[static_cast<std::size_t>(from)] = true;
      newest_ = std::max(newest_, message.step);
      break;
    case StopWord::kLast:
      take_last(message);
  }
  changed_.notify_all();
}

void StopPoint::take_last(const StopMessage& message) {
  asking_ = false;
  asker_ = static_cast<int>(message.asker);
  if (message.step < last_) state_after_ = message.step;
  choose(message.step);
  if (on_ending_) on_ending_(last_);
}

bool StopPoint::is_asking() const {
  const std::lock_guard lock(mutex_);
  return asking_;
}

void StopPoint::receiving_has_failed() {
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }
  changed_.notify_all();
}

std::optional<Incoming> StopEnd::receive(std::chrono::milliseconds timeout) {
  try {
    stop_.wish();
    const auto last = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (!stop_.is_asking()) {
        if (auto message = take_first(held_)) return message;
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(last - std::chrono::steady_clock::now());
      auto message = end().receive(std::max(left, std::chrono::milliseconds(0)));
      if (!message || !keep(*message)) return message;
    }
  } catch (...) {
    stop_.receiving_has_failed();
    throw;
  }
}

bool StopEnd::keep(Incoming& message) {
  if (begins_as<StopMessage>(*message.bytes)) {
    stop_.take(message.from, parse_report<StopMessage>(message, 0));
    return true;
  }
  // What comes to rank 0 cannot make a server pass the step in which that has not pushed yet.
  const bool held = rank() != 0 && stop_.is_asking();
  if (held) held_.push_back(std::move(message));
  return held;
}

}  // namespace tersewire::trainer
