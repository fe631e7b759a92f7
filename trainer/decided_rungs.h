// Which codec encodes each step, where that is decided while the job runs: rank 0 decides for some
// steps at a time and tells every other node, in a message of the transport that only the trainer
// reads. No node encodes anything of a step before it knows.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "tersewire/passing_transport.h"

namespace tersewire::trainer {

// That the steps from `first` to `last` are encoded with the codec of this rung.
struct DecidedSteps {
  static constexpr std::uint64_t kKind = 0x3144494345445254;  // "TRDECID1"

  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t rung = 0;
};

// What this process's nodes know. Any thread.
class DecidedRungs {
 public:
  explicit DecidedRungs(std::size_t rungs) : rungs_(rungs) {}

  // Decisions come in the order of their steps, to each node on its own. Throws kDataLoss for one
  // that makes no sense.
  void add(const DecidedSteps& steps);
  // Throws kFailedPrecondition for a step of which nothing is known.
  [[nodiscard]] std::size_t rung(std::uint64_t step) const;
  [[nodiscard]] bool knows(std::uint64_t step) const;
  // Whether there is nothing to wait for: the step is known, or nothing more will come (end()).
  bool wait(std::uint64_t step, std::chrono::milliseconds timeout);
  // Nothing more will come.
  void end();

 private:
  std::size_t rungs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, DecidedSteps> by_first_;
  std::uint64_t known_ = 0;
  bool ended_ = false;
};

// A node's end of the network, but rank 0's: sorts out the decisions among its messages. One thread
// at a time receives.
class DecisionEnd final : public PassingTransport {
 public:
  // Both must outlive it.
  DecisionEnd(Transport& end, DecidedRungs& rungs) : PassingTransport(end), rungs_(rungs) {}

  // Never a decision.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;

  // For a thread beside the one that receives: returns when the step is known, or when the job is
  // over. Throws kUnavailable and kDeadlineExceeded where rank 0 is gone, or says nothing for too
  // long.
  void wait(std::uint64_t step, const WaitLimits& limits);
  // For a node whose only thread receives: that of a step, for which it receives until it is known.
  std::size_t rung(std::uint64_t step, const WaitLimits& limits);

 private:
  // Whether the message was a decision.
  bool take(const Incoming& message);

  DecidedRungs& rungs_;
  std::deque<Incoming> others_;
};

// Rank 0's: for itself and for all others.
void decide(Transport& end, DecidedRungs& rungs, const DecidedSteps& steps);

}  // namespace tersewire::trainer
