// Which of a job's codecs is worth its time: decided from what steps took, and from what
// predict_step() says that they would take with another. It reads no clock and draws no numbers:
// the same measurements give the same decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/predict.h"

namespace tersewire::trainer {

// In the place of a codec: a ladder of them, among which the job chooses.
inline constexpr const char* kAutoCodec = "auto";
// For what servers send: the codec of the same rung, as adaptive_pull_codec() has it.
inline constexpr const char* kAutoPullWithoutResidual = "auto:ef=off";

inline bool is_auto_pull(std::string_view codec) {
  return codec == kAutoCodec || codec == kAutoPullWithoutResidual;
}

// The rungs that `auto` chooses among, from the lightest to the strongest: those codecs that fit
// what the job's exchange carries and, where the job may make local updates, after them the
// strongest two once in so many steps. Nobody decides on them yet. Throws kInvalidArgument for a
// job in which codecs cannot take turns.
CodecLadder ladder_for(const Job& job);

// For people: the codec of a rung, and where its rounds have several steps how many.
std::string rung_name(const std::string& codec, std::uint64_t steps_a_round);

// Whether servers send the mean gradients of a step, of which each worker makes its own update.
bool sends_means(const Job& job);

// Gives a job with kAutoCodec its ladder, and the lightest codec of it. Nobody decides on that yet:
// whoever runs a node says who does, decided_by(). Throws like ladder_for(), and kInvalidArgument
// where the two directions differ but for kAutoPullWithoutResidual, which is for means.
void choose_among_codecs(Job& job);

// The ladder of that job, and another way to know which of its rungs an exchange has, and what
// DecidedRungs says of its steps.
std::shared_ptr<const CodecLadder> decided_by(
    const Job& job, const std::function<std::size_t(std::uint64_t exchange)>& rung,
    const std::function<std::uint64_t(std::uint64_t exchange)>& last_step);

// What a step of some took at worker 0, where exchanges are rarer its share of one.
struct MeasuredSteps {
  double seconds = 0;
  double wait_seconds = 0;    // for what had not arrived
  double encode_seconds = 0;  // of a processor
  double decode_seconds = 0;
  double pushed_bytes = 0;
  double pulled_bytes = 0;
  double pushed_values = 0;
  double pulled_values = 0;
};

struct CodecDecision {
  std::uint64_t step = 0;  // the first that it is for
  std::string codec = {};
  int local_updates = 0;  // steps from one exchange to the next; 0: each has one, of gradients
  double expected = 0;    // times as fast as before; 0 where nothing was predicted
  double measured = 0;    // the same, once it was seen; 0 before
  std::string sentence = {};
  bool over_budget = false;  // it says that no codec stays within the budget
};

using CodecDecisions = std::vector<CodecDecision>;

class CodecChooser {
 public:
  // `job` has the ladder. `bytes_a_day`, where there are some, is the most that a worker may send
  // and receive. It begins at the lightest codec, and its first look may choose any, or wait for
  // the second where that would gain less than 2 times; later ones the next on the ladder.
  // `overlaps`: whether exchanges go on while steps are computed; after local updates they do not.
  CodecChooser(const Job& job, std::optional<double> bytes_a_day, bool overlaps = true);

  // Begins, or goes on, at this rung; the next look is no first one where `chosen`.
  void begin(std::size_t rung, bool chosen);

  struct Outcome {
    std::optional<CodecDecision> decision;  // where there is something to say
    // What came of the decision before, times as fast; 0 where that is known already.
    double measured = 0;
  };
  // Decides how the steps from `step` on, an exchange's first, are exchanged.
  Outcome look(std::uint64_t step, const MeasuredSteps& measured);

  [[nodiscard]] std::size_t rung() const { return rung_; }
  // A decision for that rung, which says nothing yet.
  [[nodiscard]] CodecDecision decision_for(std::uint64_t step, std::size_t rung) const;
  // From one exchange to the next.
  [[nodiscard]] std::uint64_t steps_a_round(std::size_t rung) const {
    return jobs_[rung].steps_a_round();
  }
  // How many exchanges after that with which `step` begins the next look is: some steps later,
  // fewer after a change, whose first exchange is still the other codec's, and where the longest
  // round can begin.
  [[nodiscard]] std::uint64_t exchanges_to_look(std::uint64_t step, bool changed) const;
  // Whether the last look changed the codec.
  [[nodiscard]] bool has_moved() const { return from_.has_value(); }
  // Of the link, as far as it could be told: infinity where it took no time.
  [[nodiscard]] double bits_per_second() const { return rate_; }

 private:
  // Of a rung: what encoding and decoding a value were seen to take, or what is known of others.
  struct Cost {
    CodecCost push;
    CodecCost pull;
    bool seen = false;
  };
  // The window before a change.
  struct Before {
    std::size_t rung;
    double seconds;
    double unexplained;
    double expected;
    bool was_forced;  // by the budget, or by what the change before had not brought
  };

  [[nodiscard]] std::string name(std::size_t rung) const {
    return rung_name(codecs_[rung], steps_a_round(rung));
  }
  void learn(const MeasuredSteps& measured);
  [[nodiscard]] double step_seconds(std::size_t rung, double rate) const;
  [[nodiscard]] double link_seconds(std::size_t rung, double rate) const;
  template <typename Seconds>
  [[nodiscard]] double rate_for(double seconds, const Seconds& of_rate) const;
  void find_rate(double seconds);
  [[nodiscard]] double bytes_in_a_day(std::size_t rung) const;
  [[nodiscard]] std::size_t lightest_in_budget() const;
  // Whether a round of that rung can begin in the step that is looked at.
  [[nodiscard]] bool can_begin(std::size_t rung) const {
    return (step_ - 1) % steps_a_round(rung) == 0;
  }
  [[nodiscard]] bool may_take(std::size_t rung) const {
    return looks_ >= barred_until_[rung] && can_begin(rung);
  }
  [[nodiscard]] std::size_t fastest(std::size_t least) const;
  [[nodiscard]] std::size_t next_rung(std::size_t least) const;
  [[nodiscard]] std::size_t to_try(std::size_t least) const;
  std::optional<CodecDecision> come_back(const MeasuredSteps& measured);
  CodecDecision move(std::size_t to, const MeasuredSteps& measured, const std::string& why,
                     bool forced);
  [[nodiscard]] std::string why_for_budget() const;
  [[nodiscard]] std::string why_for_speed(std::size_t to, const MeasuredSteps& measured) const;
  std::optional<CodecDecision> warn_of_budget();

  std::vector<std::string> codecs_;
  std::vector<Job> jobs_;  // by rung, with that codec and clock alone
  std::optional<double> bytes_a_day_;
  bool overlaps_;
  std::vector<Cost> costs_;
  double pushed_ = 0;       // values that a worker sends in an exchange
  double pulled_ = 0;       // and receives
  double compute_ = 0;      // a step's
  double rate_;             // of the link
  double other_waits_ = 0;  // a step's, that no link and no codec is to blame for
  // Of this look: what a step takes by rung, where its link takes no time and over the link that
  // there is; and what the measured one took that is not computation, nor codecs, the servers' too.
  std::vector<double> linkless_;
  std::vector<double> expected_;
  double unexplained_ = 0;
  std::uint64_t step_ = 1;  // of this look
  std::size_t rung_ = 0;
  bool is_first_ = true;
  bool said_over_budget_ = false;
  std::optional<Before> from_;
  std::uint64_t looks_ = 0;
  std::vector<std::uint64_t> barred_until_;  // by rung, looks
  std::vector<std::uint64_t> bar_;           // how long next time
};

}  // namespace tersewire::trainer
