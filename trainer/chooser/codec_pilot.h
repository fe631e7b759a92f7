// Rank 0's, where the job chooses its codec: measures steps, has them judged (CodecChooser), tells
// all nodes what was decided, and remembers it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/chooser/codec_chooser.h"
#include "trainer/members/decided_rungs.h"

namespace tersewire::trainer {

// Of TrainConfig::budget: "2GB/day", in kB, MB, GB or TB; none where it is empty. Throws
// kInvalidArgument.
std::optional<double> budget_bytes_a_day(const std::string& budget);

// As a fact of rank 0's checkpoint, the text of their JSON, and back: none of an empty one. Throws
// kDataLoss for another text, and for that of older versions.
inline constexpr const char* kDecisionsFact = "codec-decisions";
std::string text_of(const CodecDecisions& decisions);
CodecDecisions decisions_in(const std::string& text);

// The exchanges up to a step, or the one that it is in, by decisions from step 1 on. Throws
// kInvalidArgument where a decision is of something that is not on the ladder, or does not begin
// and end with its rounds.
std::vector<DecidedSteps> decided_steps(const CodecDecisions& decisions, const CodecLadder& ladder,
                                        std::uint64_t last_step);

class CodecPilot {
 public:
  using OnDecision = std::function<void(const CodecDecisions& all)>;

  // `before` are the decisions of a run that goes on. With `replay` those steps have the codecs
  // that it says, and nothing is measured. What is given must outlive it. Throws kInvalidArgument
  // where the decisions are of other codecs than the job's.
  CodecPilot(const Job& job, std::optional<double> bytes_a_day, Transport& end, DecidedRungs& rungs,
             OnDecision on_decision, CodecDecisions before, const CodecDecisions* replay,
             bool overlaps = true);

  // At the beginning of each exchange's first step. `seconds` and `counters` count from anywhere.
  void begin(std::uint64_t exchange, double seconds, const Counters& counters);
  // Whether all that the exchange before brings is to have arrived when it is told of this one.
  [[nodiscard]] bool measures_arrivals(std::uint64_t exchange) const {
    return !replay_ && exchange == first_ + 1 && exchange == next_look_;
  }

  [[nodiscard]] const CodecDecisions& decisions() const { return decisions_; }
  // The codec of a step that has begun.
  [[nodiscard]] const std::string& codec(std::uint64_t step) const {
    return ladder_.codecs[rungs_.rung(rungs_.exchange_of(step))];
  }

 private:
  struct Moment {
    double seconds = 0;
    Counters counters;
  };

  void begin_first(std::uint64_t exchange);
  void replay(std::uint64_t exchange);
  void look(std::uint64_t exchange);
  [[nodiscard]] MeasuredSteps measured() const;
  [[nodiscard]] std::uint64_t first_step_of(std::uint64_t exchange) const {
    return rungs_.last_step(exchange - 1) + 1;
  }

  CodecLadder ladder_;
  Transport& end_;
  DecidedRungs& rungs_;
  OnDecision on_decision_;
  CodecDecisions decisions_;
  const CodecDecisions* replay_;
  CodecChooser chooser_;
  // Exchanges.
  std::uint64_t first_ = 0;  // 0: none has begun
  std::uint64_t next_look_ = 0;
  std::uint64_t counts_from_ = 0;  // the first that the next look goes by
  std::vector<Moment> moments_;    // when that and the following began
};

}  // namespace tersewire::trainer
