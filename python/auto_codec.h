// The codec of a job that chooses it itself (codec auto), at one of its ranks: what the trainer
// has, for who takes means in the same step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tersewire/communicator.h"
#include "trainer/chooser/codec_pilot.h"
#include "trainer/members/decided_rungs.h"

namespace tersewire::python {

// One thread at a time.
class AutoCodec {
 public:
  // Gives `job`, which has a ladder, the way to know its codecs, for as long as this exists; `end`
  // is this rank's, and must outlive it. Rank 0 decides, after the decisions of `before`; with
  // `replay` it takes those. `bytes_a_day`: the most that a rank may send and receive. `overlaps`:
  // whether gradients are exchanged while others are computed. Throws like CodecPilot.
  AutoCodec(Job& job, Transport& end, trainer::CodecDecisions before,
            std::optional<trainer::CodecDecisions> replay, std::optional<double> bytes_a_day,
            bool overlaps);
  AutoCodec(const AutoCodec&) = delete;
  AutoCodec& operator=(const AutoCodec&) = delete;

  // What the communicator is to use.
  [[nodiscard]] Transport& end() { return others_ ? *others_ : end_; }

  // Once a step has begun, before anything of it is encoded: decides, or waits until rank 0 has.
  //   stood_seconds  on the clock, since any moment: how long training stood still for exchanges
  // Throws like DecisionEnd::wait().
  void begin_step(std::uint64_t step, double stood_seconds, const Counters& counters);

  // All of them on rank 0, none elsewhere.
  [[nodiscard]] trainer::CodecDecisions decisions() const;
  // What decisions say that they did not say when this was called last, nor in `before`.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }
  // Of the step that began last; empty before the first.
  [[nodiscard]] std::string codec() const;

 private:
  void note(const trainer::CodecDecisions& all);

  Transport& end_;
  WaitLimits limits_;
  std::vector<std::string> codecs_;
  std::optional<trainer::CodecDecisions> replay_;
  std::vector<std::string> said_;  // by decision
  std::vector<std::string> news_;
  std::shared_ptr<trainer::DecidedRungs> rungs_;
  std::optional<trainer::CodecPilot> pilot_;  // on rank 0
  std::optional<trainer::DecisionEnd> others_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t step_ = 0;
};

}  // namespace tersewire::python
