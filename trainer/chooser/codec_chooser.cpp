#include "trainer/chooser/codec_chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tersewire/codec.h"
#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

// From light to strong. None of them lost more than a tenth of a point in the short trainings of
// evidence/predictions, and what int8 rounds off comes later, so that nothing is lost between them.
constexpr std::array kLadder{"fp32", "int8:ef=on", "3lc", "3lc:s=1.75"};

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Of a link that predict_step() can be told, in place of none.
constexpr double kLeastRate = 1e4;
constexpr double kMostRate = 1e13;
constexpr double kRateStep = 1.05;  // how near to it a rate is found
// A stronger codec has to gain so much, a lighter one may lose so little.
constexpr double kWorthIt = 1.05;
constexpr double kNearlyAsFast = 1.02;
constexpr double kClearlyWorthIt = 2;  // what a single step can tell
// So much slower a lighter codec may be predicted to be, and is measured once all the same.
constexpr double kWorthATry = 1.25;
// The share of a step that is not told from nothing.
constexpr double kNoise = 0.03;
// A rate that differs by so much is another.
constexpr double kOtherLink = 1.5;
constexpr std::uint64_t kLeastBar = 4;  // looks
constexpr std::uint64_t kMostBar = 64;
constexpr double kLeastSlower = 0.2;  // what a clock that is too coarse cannot make less
constexpr double kSecondsADay = 86400;

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

CodecLadder ladder_for(const Job& job) {
  const bool is_clock = job.local_updates > 0;
  const auto undecided = [](std::uint64_t) -> std::size_t {
    throw Error(ErrorCode::kFailedPrecondition,
                "nobody decides on this job's codec; please report this");
  };
  CodecLadder ladder{.codecs = {}, .rung = undecided};
  if (is_clock) ladder.last_step = undecided;
  const auto add = [&](const std::string& codec, int steps) {
    ladder.codecs.push_back(codec);
    if (is_clock) ladder.steps.push_back(steps);
  };
  for (const char* codec : kLadder) {
    Job with = job;
    with.push_codec = with.pull_codec = codec;
    CodecLadder one = ladder;
    one.codecs = {codec};
    if (is_clock) one.steps = {1};
    with.ladder = std::make_shared<const CodecLadder>(std::move(one));
    try {
      static_cast<void>(server_nodes(with));
      add(codec, 1);
    } catch (const Error& error) {
      if (ladder.codecs.empty() || error.code() != ErrorCode::kInvalidArgument) throw;
    }
  }
  if (job.local_updates <= 1) return ladder;
  const std::vector<std::string> codecs = ladder.codecs;
  for (std::size_t i = std::max<std::size_t>(codecs.size(), 3) - 2; i < codecs.size(); ++i) {
    add(codecs[i], job.local_updates);
  }
  return ladder;
}

std::string rung_name(const std::string& codec, std::uint64_t steps_a_round) {
  return steps_a_round <= 1 ? codec : fmt::format("{} once in {} steps", codec, steps_a_round);
}

bool sends_means(const Job& job) {
  const ExchangeTraits& traits = exchange_traits(job.exchange);
  return traits.shards && traits.workers_own_model && job.local_updates == 0;
}

void choose_among_codecs(Job& job) {
  const bool without_residual = job.pull_codec == kAutoPullWithoutResidual;
  if (job.push_codec != kAutoCodec || !is_auto_pull(job.pull_codec)) {
    throw Error(ErrorCode::kInvalidArgument,
                "codec auto chooses for both directions, but they have " + job.push_codec +
                    " and " + job.pull_codec + "; give one of them as --codec");
  }
  if (without_residual && !sends_means(job)) {
    throw Error(ErrorCode::kInvalidArgument,
                "pull codec auto:ef=off is for the mean gradients of gradient-server; use auto");
  }
  CodecLadder ladder = ladder_for(job);
  for (const std::string& codec : ladder.codecs) {
    ladder.pull_codecs.push_back(without_residual ? adaptive_pull_codec(codec) : codec);
  }
  job.push_codec = ladder.codecs.front();
  job.pull_codec = ladder.pull_codecs.front();
  job.ladder = std::make_shared<const CodecLadder>(std::move(ladder));
}

std::shared_ptr<const CodecLadder> decided_by(
    const Job& job, const std::function<std::size_t(std::uint64_t exchange)>& rung,
    const std::function<std::uint64_t(std::uint64_t exchange)>& last_step) {
  CodecLadder ladder = *job.ladder;
  ladder.rung = rung;
  if (ladder.last_step) ladder.last_step = last_step;
  return std::make_shared<const CodecLadder>(std::move(ladder));
}

CodecChooser::CodecChooser(const Job& job, std::optional<double> bytes_a_day, bool overlaps)
    : codecs_(job.ladder->codecs),
      bytes_a_day_(bytes_a_day),
      overlaps_(overlaps && job.local_updates == 0),
      rate_(kNoLimit),
      linkless_(codecs_.size(), 0),
      expected_(codecs_.size(), 0),
      barred_until_(codecs_.size(), 0),
      bar_(codecs_.size(), kLeastBar) {
  const std::vector<std::string>& pulled = job.ladder->pull_codecs;
  for (std::size_t rung = 0; rung < codecs_.size(); ++rung) {
    Job& one = jobs_.emplace_back(job);
    one.ladder.reset();
    one.push_codec = codecs_[rung];
    one.pull_codec = pulled.empty() ? codecs_[rung] : pulled[rung];
    if (job.local_updates > 0) one.local_updates = job.ladder->steps[rung];
    costs_.push_back(
        {.push = measured_codec(one.push_codec).cost, .pull = measured_codec(one.pull_codec).cost});
  }
  for (const TensorInfo& tensor : job.tensors) pushed_ += static_cast<double>(tensor.elems());
  pulled_ = pushed_;
}

void CodecChooser::begin(std::size_t rung, bool chosen) {
  rung_ = rung;
  is_first_ = !chosen;
}

CodecDecision CodecChooser::decision_for(std::uint64_t step, std::size_t rung) const {
  return {.step = step,
          .codec = codecs_[rung],
          .local_updates = jobs_[rung].local_updates,
          .sentence = {}};
}

std::uint64_t CodecChooser::exchanges_to_look(std::uint64_t step, bool changed) const {
  constexpr std::uint64_t kStepsBetween = 10;
  constexpr std::uint64_t kStepsAfterChange = 4;
  const std::uint64_t round = steps_a_round(rung_);
  const std::uint64_t longest = steps_a_round(codecs_.size() - 1);
  const std::uint64_t ahead = std::max(changed ? kStepsAfterChange : kStepsBetween, 2 * round);
  const std::uint64_t next = (step - 1 + ahead + longest - 1) / longest * longest + 1;
  return (next - step) / round;
}

void CodecChooser::learn(const MeasuredSteps& measured) {
  const double codec_seconds = measured.encode_seconds + measured.decode_seconds;
  compute_ = std::max(measured.seconds - measured.wait_seconds - codec_seconds, 0.0);
  if (!(measured.pushed_values > 0 && measured.pulled_values > 0)) return;
  const auto steps = static_cast<double>(steps_a_round(rung_));
  pushed_ = measured.pushed_values * steps;
  pulled_ = measured.pulled_values * steps;
  Cost& cost = costs_[rung_];
  const CodecCost known = measured_codec(codecs_[rung_]).cost;
  cost.push = {.bits = 8 * measured.pushed_bytes / measured.pushed_values,
               .encode_seconds = measured.encode_seconds / measured.pushed_values,
               .decode_seconds = measured.decode_seconds / measured.pulled_values};
  cost.pull = cost.push;
  cost.pull.bits = 8 * measured.pulled_bytes / measured.pulled_values;
  cost.seen = true;
  const double slower = std::max((cost.push.encode_seconds + cost.push.decode_seconds) /
                                     (known.encode_seconds + known.decode_seconds),
                                 kLeastSlower);
  for (std::size_t rung = 0; rung < costs_.size(); ++rung) {
    if (costs_[rung].seen) continue;
    CodecCost& push = costs_[rung].push;
    push = measured_codec(codecs_[rung]).cost;
    if (rung > 0) {  // fp32 is a copy, whatever codecs take
      push.encode_seconds *= slower;
      push.decode_seconds *= slower;
    }
    costs_[rung].pull = push;
  }
}

double CodecChooser::step_seconds(std::size_t rung, double rate) const {
  const double apart = overlaps_ ? 0 : compute_;
  return apart + predict_step(jobs_[rung], {.link = {.bits_per_second = rate},
                                            .compute_seconds = compute_ - apart,
                                            .push = costs_[rung].push,
                                            .pull = costs_[rung].pull})
                     .step_seconds;
}

// What a link of this rate adds to a step.
double CodecChooser::link_seconds(std::size_t rung, double rate) const {
  return step_seconds(rung, rate) - linkless_[rung];
}

// The rate at which a link takes so long; `of_rate` falls.
template <typename Seconds>
double CodecChooser::rate_for(double seconds, const Seconds& of_rate) const {
  double low = kLeastRate;
  double high = kMostRate;
  while (high > kRateStep * low) {
    const double middle = std::sqrt(low * high);
    (of_rate(middle) > seconds ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

// What is not explained is the link's or has other reasons, such as workers that share a processor.
// Where the codec has just changed, what that changed is the link's. Else other reasons are as they
// were. `seconds` of a step.
void CodecChooser::find_rate(double seconds) {
  const double noise = kNoise * seconds;
  const double old = rate_;
  const auto here = [&](double rate) { return link_seconds(rung_, rate); };
  if (from_) {
    const std::size_t heavy = std::min(rung_, from_->rung);
    const std::size_t light = std::max(rung_, from_->rung);
    const double saved =
        rung_ > from_->rung ? from_->unexplained - unexplained_ : unexplained_ - from_->unexplained;
    const auto difference = [&](double rate) {
      return link_seconds(heavy, rate) - link_seconds(light, rate);
    };
    if (saved > noise) {
      rate_ = rate_for(saved, difference);
      other_waits_ = std::max(unexplained_ - here(rate_), 0.0);
    } else {
      // A slower link would have shown. From fp32 any would; what two strong codecs send differs
      // by so little that it tells nothing of what a lighter one would take.
      rate_ = heavy == 0 ? kNoLimit : std::max(rate_, rate_for(noise, difference));
      other_waits_ = std::min(from_->unexplained, unexplained_);
    }
    return;
  }
  other_waits_ = std::min(other_waits_, unexplained_);
  const double of_link = unexplained_ - other_waits_;
  if (of_link > noise) {
    rate_ = rate_for(of_link, here);
  } else if (rate_ != kNoLimit && rate_ * kOtherLink < rate_for(noise, here)) {
    rate_ = kNoLimit;  // it was slower, and would be seen
  }
  const bool is_other = old != rate_ && !(rate_ < old * kOtherLink && old < rate_ * kOtherLink);
  if (!is_other) return;
  std::ranges::fill(barred_until_, 0);
  std::ranges::fill(bar_, kLeastBar);
}

double CodecChooser::bytes_in_a_day(std::size_t rung) const {
  const double bits = pushed_ * costs_[rung].push.bits + pulled_ * costs_[rung].pull.bits;
  const double bytes_a_step = bits / 8 / static_cast<double>(steps_a_round(rung));
  return bytes_a_step / expected_[rung] * kSecondsADay;
}

// The strongest where none is.
std::size_t CodecChooser::lightest_in_budget() const {
  if (!bytes_a_day_) return 0;
  std::size_t rung = 0;
  while (rung + 1 < codecs_.size() && bytes_in_a_day(rung) > *bytes_a_day_) ++rung;
  return rung;
}

std::size_t CodecChooser::fastest(std::size_t least) const {
  std::size_t best = std::max(least, rung_);
  for (std::size_t rung = least; rung < codecs_.size(); ++rung) {
    if (may_take(rung) && expected_[rung] < expected_[best]) best = rung;
  }
  return best;
}

// Of those that are about as fast as the fastest, the lightest; one rung towards it, unless nothing
// has been chosen yet.
std::size_t CodecChooser::next_rung(std::size_t least) const {
  const std::size_t best = fastest(least);
  const double best_seconds = expected_[best];
  if (is_first_) {
    for (std::size_t rung = least; rung < best; ++rung) {
      if (expected_[rung] <= kWorthIt * best_seconds) return rung;
    }
    return best;
  }
  if (rung_ < least) return rung_ + 1;
  const double here = expected_[rung_];
  if (here > kWorthIt * best_seconds) {
    const std::size_t next = best > rung_ ? rung_ + 1 : rung_ - 1;
    return may_take(next) && expected_[next] < here ? next : rung_;
  }
  if (rung_ > least && may_take(rung_ - 1)) {
    const double lighter = expected_[rung_ - 1];
    if (lighter <= kNearlyAsFast * std::min(best_seconds, here)) return rung_ - 1;
  }
  return to_try(least);
}

// Of the lighter codecs that no step has had, the one that is expected to be the fastest, where
// that is about as fast as this one: predictions are not as exact as steps. This one where there is
// none.
std::size_t CodecChooser::to_try(std::size_t least) const {
  std::size_t best = rung_;
  double best_seconds = kWorthATry * expected_[rung_];
  for (std::size_t rung = least; rung < rung_; ++rung) {
    if (costs_[rung].seen || !(expected_[rung] < best_seconds)) continue;
    best = rung;
    best_seconds = expected_[rung];
  }
  return best;
}

CodecDecision CodecChooser::move(std::size_t to, const MeasuredSteps& measured,
                                 const std::string& why, bool forced) {
  const double expected = expected_[rung_] / expected_[to];
  CodecDecision decision = decision_for(step_, to);
  decision.expected = expected;
  decision.sentence = fmt::format("step {}: {}; from {} to {}, expected {:.2f} times as fast",
                                  step_, why, name(rung_), name(to), expected);
  from_ = Before{.rung = rung_,
                 .seconds = measured.seconds,
                 .unexplained = unexplained_,
                 .expected = expected,
                 .was_forced = forced};
  rung_ = to;
  return decision;
}

// From a change that made steps slower, or not faster.
std::optional<CodecDecision> CodecChooser::come_back(const MeasuredSteps& measured) {
  if (!from_ || from_->was_forced) return std::nullopt;
  const double gained = share_of(from_->seconds, measured.seconds);
  const bool was_stronger = rung_ > from_->rung;
  if (gained >= (was_stronger ? 1.0 : 1 / kWorthIt)) return std::nullopt;
  barred_until_[rung_] = looks_ + bar_[rung_];
  bar_[rung_] = std::min(2 * bar_[rung_], kMostBar);
  const std::string why =
      was_stronger
          ? fmt::format("with {} a step is {:.2f} times as fast, not {:.2f}", name(rung_), gained,
                        from_->expected)
          : fmt::format("with {} a step is only {:.2f} times as fast", name(rung_), gained);
  return move(from_->rung, measured, why, true);
}

CodecChooser::Outcome CodecChooser::look(std::uint64_t step, const MeasuredSteps& measured) {
  ++looks_;
  step_ = step;
  learn(measured);
  for (std::size_t rung = 0; rung < codecs_.size(); ++rung) {
    linkless_[rung] = step_seconds(rung, kMostRate);
  }
  unexplained_ = std::max(measured.seconds - linkless_[rung_], 0.0);
  find_rate(measured.seconds);
  for (std::size_t rung = 0; rung < codecs_.size(); ++rung) {
    const double seconds = rate_ == kNoLimit ? linkless_[rung] : step_seconds(rung, rate_);
    expected_[rung] = seconds + other_waits_;
  }
  Outcome outcome;
  if (from_) outcome.measured = share_of(from_->seconds, measured.seconds);
  outcome.decision = come_back(measured);
  if (outcome.decision) return outcome;
  from_.reset();
  const std::size_t least = lightest_in_budget();
  // A first step takes longer than others for reasons of its own.
  const bool is_too_soon = is_first_ && looks_ == 1 && least == 0 &&
                           expected_[rung_] < kClearlyWorthIt * expected_[fastest(least)];
  std::size_t to = is_too_soon ? rung_ : next_rung(least);
  while (to != rung_ && !can_begin(to)) --to;  // for a budget; those of one step always can
  is_first_ = is_too_soon;
  if (to != rung_) {
    const bool for_budget = rung_ < least;
    const std::string why = for_budget ? why_for_budget() : why_for_speed(to, measured);
    outcome.decision = move(to, measured, why, for_budget);
  } else {
    outcome.decision = warn_of_budget();
  }
  return outcome;
}

std::string CodecChooser::why_for_budget() const {
  return fmt::format("{} would take {:.3g} GB a day, more than the budget of {:.3g} GB",
                     name(rung_), 1e-9 * bytes_in_a_day(rung_), 1e-9 * *bytes_a_day_);
}

std::string CodecChooser::why_for_speed(std::size_t to, const MeasuredSteps& measured) const {
  std::string why =
      fmt::format("the link takes {:.0f} % of a step",
                  100 * std::clamp(share_of(measured.wait_seconds, measured.seconds), 0.0, 1.0));
  if (to > rung_) return why;
  return why + (costs_[to].seen ? ", and less compression costs no more"
                                : fmt::format(", and {} has not been measured yet", name(to)));
}

// Once, until steps have stayed within it again.
std::optional<CodecDecision> CodecChooser::warn_of_budget() {
  const bool is_over = bytes_a_day_ && bytes_in_a_day(rung_) > *bytes_a_day_;
  const bool said_already = std::exchange(said_over_budget_, is_over);
  if (!is_over || said_already) return std::nullopt;
  CodecDecision decision = decision_for(step_, rung_);
  decision.over_budget = true;
  decision.sentence = fmt::format(
      "step {}: {} takes {:.3g} GB a day, and nothing that auto may choose stays within the budget "
      "of {:.3g} GB; use {}local updates (--local-updates), or longer steps",
      step_, name(rung_), 1e-9 * bytes_in_a_day(rung_), 1e-9 * *bytes_a_day_,
      jobs_[rung_].local_updates > 0 ? "more " : "");
  return decision;
}

}  // namespace tersewire::trainer
