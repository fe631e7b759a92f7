// Which codec encodes each exchange, and how many steps it is for, where that is decided while the
// job runs: rank 0 decides for some exchanges at a time and tells every other node, in a message of
// the transport that only the trainer reads. No node encodes anything of one before it knows.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/passing_transport.h"

namespace tersewire::trainer {

// That the exchanges from `first` to `last`, numbered from 1, are of this rung.
struct DecidedSteps {
  static constexpr std::uint64_t kKind = 0x3144494345445254;  // "TRDECID1"

  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t rung = 0;
};

// What this process's nodes know. Any thread.
class DecidedRungs {
 public:
  explicit DecidedRungs(const CodecLadder& ladder)
      : rungs_(ladder.codecs.size()), steps_(ladder.steps) {}

  // Decisions come in the order of their exchanges, to each node on its own; where exchanges are
  // for several steps, from the first one on. Throws kDataLoss for one that makes no sense.
  void add(const DecidedSteps& steps);
  // Throws kFailedPrecondition for an exchange of which nothing is known.
  [[nodiscard]] std::size_t rung(std::uint64_t exchange) const;
  // As CodecLadder::last_step; throws like rung().
  [[nodiscard]] std::uint64_t last_step(std::uint64_t exchange) const;
  // The exchange that a step belongs to, which is known or the next one.
  [[nodiscard]] std::uint64_t exchange_of(std::uint64_t step) const;
  [[nodiscard]] bool knows(std::uint64_t exchange) const;
  // Whether there is nothing to wait for: the exchange is known, or nothing more will come (end()).
  bool wait(std::uint64_t exchange, std::chrono::milliseconds timeout);
  // Nothing more will come.
  void end();

 private:
  struct Run {
    DecidedSteps decided;
    std::uint64_t steps_before = 0;
  };

  [[nodiscard]] const Run& run_with(std::uint64_t exchange) const;
  [[nodiscard]] std::uint64_t steps_a_round(const Run& run) const {
    return steps_.empty() ? 1 : static_cast<std::uint64_t>(steps_[run.decided.rung]);
  }
  [[nodiscard]] std::uint64_t last_step_in(const Run& run, std::uint64_t exchange) const {
    return run.steps_before + (exchange - run.decided.first + 1) * steps_a_round(run);
  }

  std::size_t rungs_;
  std::vector<int> steps_;  // of a round, by rung; none where each exchange is a step's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Run> by_first_;
  std::uint64_t known_ = 0;
  bool ended_ = false;
};

// The exchanges of a job whose last step, or the last one begun, is this; `rungs`, which know them,
// may be null where nothing is decided.
std::uint64_t exchanges_up_to(std::uint64_t step, const Job& job, const DecidedRungs* rungs);

// A node's end of the network, but rank 0's: sorts out the decisions among its messages. One thread
// at a time receives.
class DecisionEnd final : public PassingTransport {
 public:
  // Both must outlive it.
  DecisionEnd(Transport& end, DecidedRungs& rungs) : PassingTransport(end), rungs_(rungs) {}

  // Never a decision.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;

  // For a thread beside the one that receives: returns when the exchange is known, or when the job
  // is over. Throws kUnavailable and kDeadlineExceeded where rank 0 is gone, or says nothing for
  // too long.
  void wait(std::uint64_t exchange, const WaitLimits& limits);
  // For a node whose only thread receives: that of an exchange, for which it receives until it is
  // known.
  std::size_t rung(std::uint64_t exchange, const WaitLimits& limits);

 private:
  // Whether the message was a decision.
  bool take(const Incoming& message);

  DecidedRungs& rungs_;
  std::deque<Incoming> others_;
};

// Rank 0's: for itself and for all others.
void decide(Transport& end, DecidedRungs& rungs, const DecidedSteps& steps);

}  // namespace tersewire::trainer
