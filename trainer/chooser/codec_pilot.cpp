#include "trainer/chooser/codec_pilot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tersewire/error.h"
#include "tersewire/measure.h"
#include "trainer/chooser/decisions_json.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {
namespace {

// More than any step.
constexpr std::uint64_t kEver = kMostSteps * 2;

bool are_alike(const CodecDecision& one, const CodecDecision& other) {
  return one.step == other.step && one.codec == other.codec &&
         one.local_updates == other.local_updates;
}

std::size_t rung_of(const CodecDecision& decision, const CodecLadder& ladder) {
  std::vector<std::string> names;
  for (std::size_t rung = 0; rung < ladder.codecs.size(); ++rung) {
    const int steps = ladder.steps.empty() ? 0 : ladder.steps[rung];
    if (decision.codec == ladder.codecs[rung] && decision.local_updates == steps) return rung;
    names.push_back(rung_name(ladder.codecs[rung], static_cast<std::uint64_t>(steps)));
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the decisions name codec {}{}, which auto does not choose here; it "
                          "chooses among {}, so give the decisions of a run with the same exchange",
                          decision.codec,
                          decision.local_updates > 0
                              ? fmt::format(" with {} local updates", decision.local_updates)
                              : "",
                          fmt::join(names, ", ")));
}

}  // namespace

std::optional<double> budget_bytes_a_day(const std::string& budget) {
  if (budget.empty()) return std::nullopt;
  constexpr std::array<std::pair<const char*, double>, 4> kUnits{
      {{"kB/day", 1e3}, {"MB/day", 1e6}, {"GB/day", 1e9}, {"TB/day", 1e12}}};
  double number = 0;
  const auto [end, error] = std::from_chars(budget.data(), budget.data() + budget.size(), number);
  const std::string unit(static_cast<const char*>(end), budget.data() + budget.size());
  const auto* found =
      std::ranges::find_if(kUnits, [&](const auto& each) { return unit == each.first; });
  if (error == std::errc() && found != kUnits.end() && number > 0 && number < 1e9) {
    return number * found->second;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "'" + budget + "' is not a budget; write 2GB/day, in kB, MB, GB or TB");
}

std::string text_of(const CodecDecisions& decisions) { return decisions_json(decisions).dump(); }

CodecDecisions decisions_in(const std::string& text) {
  if (text.empty()) return {};
  try {
    return decisions_in_json(nlohmann::json::parse(text, nullptr, false));
  } catch (const Error&) {
    throw Error(ErrorCode::kDataLoss,
                "the checkpoint's codec decisions are damaged, or as an older version wrote them; "
                "use another copy of it, or resume with that version");
  }
}

std::vector<DecidedSteps> decided_steps(const CodecDecisions& decisions, const CodecLadder& ladder,
                                        std::uint64_t last_step) {
  std::vector<DecidedSteps> all;
  std::uint64_t exchange = 1;
  for (std::size_t i = 0; i < decisions.size() && decisions[i].step <= last_step; ++i) {
    const std::uint64_t first = decisions[i].step;
    const std::uint64_t rung = rung_of(decisions[i], ladder);
    const bool has_next = i + 1 < decisions.size() && decisions[i + 1].step <= last_step;
    const std::uint64_t steps = (has_next ? decisions[i + 1].step : last_step + 1) - first;
    const auto a_round = static_cast<std::uint64_t>(ladder.steps.empty() ? 1 : ladder.steps[rung]);
    if ((first - 1) % a_round != 0 || (has_next && steps % a_round != 0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the decisions from step {} on do not begin and end with rounds of "
                              "{} steps; give the unedited decisions.json of a run",
                              first, a_round));
    }
    const std::uint64_t exchanges = (steps + a_round - 1) / a_round;
    if (exchanges == 0) continue;
    all.push_back({.first = exchange, .last = exchange + exchanges - 1, .rung = rung});
    exchange += exchanges;
  }
  return all;
}

CodecPilot::CodecPilot(const Job& job, std::optional<double> bytes_a_day, Transport& end,
                       DecidedRungs& rungs, OnDecision on_decision, CodecDecisions before,
                       const CodecDecisions* replay, bool overlaps)
    : ladder_(*job.ladder),
      end_(end),
      rungs_(rungs),
      on_decision_(std::move(on_decision)),
      decisions_(std::move(before)),
      replay_(replay),
      chooser_(job, bytes_a_day, overlaps) {
  for (const CodecDecision& each : decisions_) static_cast<void>(rung_of(each, ladder_));
  if (replay_ == nullptr) return;
  if (replay_->empty() || replay_->front().step != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the decisions to replay do not begin with step 1; name the decisions.json of a "
                "run with --codec auto");
  }
  static_cast<void>(decided_steps(*replay_, ladder_, kEver));
  if (!ladder_.last_step) return;
  // What an exchange's number is depends on all before it.
  for (std::size_t i = 0; i < decisions_.size(); ++i) {
    if (i < replay_->size() && are_alike(decisions_[i], replay_->at(i))) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the resumed run had {} from step {} on, but the decisions to replay "
                            "do not; name its own decisions.json",
                            decisions_[i].codec, decisions_[i].step));
  }
}

void CodecPilot::replay(std::uint64_t exchange) {
  decisions_ = *replay_;
  for (const DecidedSteps& each : decided_steps(decisions_, ladder_, kEver)) {
    if (each.last >= exchange) decide(end_, rungs_, each);
  }
  on_decision_(decisions_);
}

void CodecPilot::begin_first(std::uint64_t exchange) {
  first_ = exchange;
  if (replay_ != nullptr) return replay(exchange);
  const bool goes_on = !decisions_.empty();
  if (!goes_on) {
    CodecDecision& first =
        decisions_.emplace_back(chooser_.decision_for(first_step_of(exchange), 0));
    first.sentence = fmt::format("step {}: begins with {}", first.step, first.codec);
  }
  chooser_.begin(rung_of(decisions_.back(), ladder_), goes_on);
  next_look_ = exchange + (goes_on ? chooser_.exchanges_to_look(first_step_of(exchange), true) : 1);
  counts_from_ = exchange + (goes_on ? 1 : 0);
  decide(end_, rungs_, {.first = exchange, .last = next_look_ - 1, .rung = chooser_.rung()});
  on_decision_(decisions_);
}

void CodecPilot::begin(std::uint64_t exchange, double seconds, const Counters& counters) {
  if (first_ == 0) begin_first(exchange);
  if (replay_ != nullptr) return;
  if (exchange >= counts_from_) moments_.push_back({.seconds = seconds, .counters = counters});
  if (exchange == next_look_) look(exchange);
}

// Of the exchanges between the moments, a step's share: the middle one of their times, and the mean
// of all else.
MeasuredSteps CodecPilot::measured() const {
  const Counters& first = moments_.front().counters;
  const Counters& last = moments_.back().counters;
  const auto a_round = static_cast<double>(chooser_.steps_a_round(chooser_.rung()));
  const double steps = a_round * static_cast<double>(moments_.size() - 1);
  std::vector<double> seconds;
  std::vector<double> waits;
  for (std::size_t i = 1; i < moments_.size(); ++i) {
    seconds.push_back(moments_[i].seconds - moments_[i - 1].seconds);
    waits.push_back(moments_[i].counters.wait_seconds - moments_[i - 1].counters.wait_seconds);
  }
  const auto mean = [&](auto Counters::*number) {
    return static_cast<double>(last.*number - first.*number) / steps;
  };
  return {.seconds = median(seconds) / a_round,
          .wait_seconds = median(waits) / a_round,
          .encode_seconds = mean(&Counters::encode_seconds),
          .decode_seconds = mean(&Counters::decode_seconds),
          .pushed_bytes = mean(&Counters::pushed_bytes),
          .pulled_bytes = mean(&Counters::pulled_bytes),
          .pushed_values = mean(&Counters::pushed_values),
          .pulled_values = mean(&Counters::pulled_values)};
}

void CodecPilot::look(std::uint64_t exchange) {
  const std::uint64_t step = first_step_of(exchange);
  const CodecChooser::Outcome outcome = chooser_.look(step, measured());
  if (outcome.measured > 0) {
    CodecDecision& last = decisions_.back();
    last.measured = outcome.measured;
    last.sentence += fmt::format(", measured {:.2f}", outcome.measured);
  }
  if (outcome.decision) decisions_.push_back(*outcome.decision);
  const bool moved = chooser_.has_moved();
  next_look_ = exchange + chooser_.exchanges_to_look(step, moved);
  counts_from_ = exchange + (moved ? 1 : 0);
  const Moment now = moments_.back();
  moments_.clear();
  if (!moved) moments_.push_back(now);
  decide(end_, rungs_, {.first = exchange, .last = next_look_ - 1, .rung = chooser_.rung()});
  if (outcome.decision || outcome.measured > 0) on_decision_(decisions_);
}

}  // namespace tersewire::trainer
