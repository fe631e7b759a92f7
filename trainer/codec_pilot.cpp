#include "trainer/codec_pilot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "tersewire/error.h"
#include "trainer/train_config.h"

namespace tersewire::trainer {
namespace {

// More than any step.
constexpr std::uint64_t kEver = kMostSteps * 2;

[[noreturn]] void fail_damaged() {
  throw Error(ErrorCode::kDataLoss,
              "what the checkpoint says of decisions on codecs is damaged; use another copy of it");
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
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

std::string text_of(const CodecDecisions& decisions) {
  std::string text;
  for (const CodecDecision& each : decisions) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\n", each.step, each.codec, each.expected, each.measured,
                        each.sentence);
  }
  return text;
}

CodecDecisions decisions_in(const std::string& text) {
  CodecDecisions decisions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CodecDecision decision;
    std::istringstream fields(line);
    std::string step;
    std::string expected;
    std::string measured;
    const bool whole = std::getline(fields, step, '\t') &&
                       std::getline(fields, decision.codec, '\t') &&
                       std::getline(fields, expected, '\t') && std::getline(fields, measured, '\t');
    std::getline(fields, decision.sentence);
    const auto take = [](const std::string& from, auto& number) {
      const char* const end = from.data() + from.size();
      return std::from_chars(from.data(), end, number).ptr == end;
    };
    if (!whole || !take(step, decision.step) || !take(expected, decision.expected) ||
        !take(measured, decision.measured)) {
      fail_damaged();
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

CodecPilot::CodecPilot(const Job& job, std::optional<double> bytes_a_day, Transport& end,
                       DecidedRungs& rungs, OnDecision on_decision, CodecDecisions before,
                       const CodecDecisions* replay, bool overlaps)
    : codecs_(job.ladder->codecs),
      end_(end),
      rungs_(rungs),
      on_decision_(std::move(on_decision)),
      decisions_(std::move(before)),
      replay_(replay),
      chooser_(job, bytes_a_day, overlaps) {
  for (const CodecDecision& each : decisions_) static_cast<void>(rung_named(each.codec));
  if (replay_ == nullptr) return;
  for (const CodecDecision& each : *replay_) static_cast<void>(rung_named(each.codec));
  if (replay_->empty() || replay_->front().step != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the decisions to replay do not begin with step 1; name the decisions.json of a "
                "run with --codec auto");
  }
}

std::size_t CodecPilot::rung_named(const std::string& codec) const {
  const auto found = std::ranges::find(codecs_, codec);
  if (found != codecs_.end()) return static_cast<std::size_t>(found - codecs_.begin());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the decisions name codec {}, which auto does not choose here; it takes "
                          "{}, so name the decisions of a run with the same exchange",
                          codec, fmt::join(codecs_, ", ")));
}

void CodecPilot::replay(std::uint64_t step) {
  decisions_ = *replay_;
  for (std::size_t i = 0; i < decisions_.size(); ++i) {
    const bool last = i + 1 == decisions_.size();
    const std::uint64_t end = last ? kEver : decisions_[i + 1].step - 1;
    if (end < step || end < decisions_[i].step) continue;
    decide(end_, rungs_,
           {.first = decisions_[i].step, .last = end, .rung = rung_named(decisions_[i].codec)});
  }
  on_decision_(decisions_);
}

void CodecPilot::begin(std::uint64_t step) {
  first_ = step;
  if (replay_ != nullptr) return replay(step);
  const bool goes_on = !decisions_.empty();
  if (!goes_on) {
    decisions_.push_back(
        {.step = step,
         .codec = codecs_.front(),
         .sentence = fmt::format("step {}: begins with {}", step, codecs_.front())});
  }
  chooser_.begin(rung_named(decisions_.back().codec), goes_on);
  next_look_ = step + (goes_on ? CodecChooser::kStepsAfterChange : 1);
  counts_from_ = step + (goes_on ? 1 : 0);
  decide(end_, rungs_, {.first = step, .last = next_look_ - 1, .rung = chooser_.rung()});
  on_decision_(decisions_);
}

void CodecPilot::begin_step(std::uint64_t step, double seconds, const Counters& counters) {
  if (first_ == 0) begin(step);
  if (replay_ != nullptr) return;
  if (step >= counts_from_) moments_.push_back({.seconds = seconds, .counters = counters});
  if (step == next_look_) look(step);
}

// Of the steps between the moments: the middle one of their times, and the mean of all else.
MeasuredSteps CodecPilot::measured() const {
  const Counters& first = moments_.front().counters;
  const Counters& last = moments_.back().counters;
  const auto steps = static_cast<double>(moments_.size() - 1);
  std::vector<double> seconds;
  std::vector<double> waits;
  for (std::size_t i = 1; i < moments_.size(); ++i) {
    seconds.push_back(moments_[i].seconds - moments_[i - 1].seconds);
    waits.push_back(moments_[i].counters.wait_seconds - moments_[i - 1].counters.wait_seconds);
  }
  const auto mean = [&](auto Counters::*number) {
    return static_cast<double>(last.*number - first.*number) / steps;
  };
  return {.seconds = median(seconds),
          .wait_seconds = median(waits),
          .encode_seconds = mean(&Counters::encode_seconds),
          .decode_seconds = mean(&Counters::decode_seconds),
          .pushed_bytes = mean(&Counters::pushed_bytes),
          .pulled_bytes = mean(&Counters::pulled_bytes),
          .pushed_values = mean(&Counters::pushed_values),
          .pulled_values = mean(&Counters::pulled_values)};
}

void CodecPilot::look(std::uint64_t step) {
  const CodecChooser::Outcome outcome = chooser_.look(step, measured());
  if (outcome.measured > 0) {
    CodecDecision& last = decisions_.back();
    last.measured = outcome.measured;
    last.sentence += fmt::format(", measured {:.2f}", outcome.measured);
  }
  if (outcome.decision) decisions_.push_back(*outcome.decision);
  const bool moved = chooser_.has_moved();
  next_look_ = step + (moved ? CodecChooser::kStepsAfterChange : CodecChooser::kStepsBetween);
  counts_from_ = step + (moved ? 1 : 0);
  const Moment now = moments_.back();
  moments_.clear();
  if (!moved) moments_.push_back(now);
  decide(end_, rungs_, {.first = step, .last = next_look_ - 1, .rung = chooser_.rung()});
  if (outcome.decision || outcome.measured > 0) on_decision_(decisions_);
}

}  // namespace tersewire::trainer
