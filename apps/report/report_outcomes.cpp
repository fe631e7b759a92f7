#include "apps/report/report_outcomes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "apps/report/report_figure.h"

namespace tersewire::apps {
namespace {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNothing : sum / static_cast<double>(values.size());
}

double mean_summary(std::span<const RunRecord* const> runs, const char* key) {
  std::vector<double> values;
  for (const RunRecord* run : runs) values.push_back(run->summary(key));
  return mean(values);
}

}  // namespace

const char* times_name(const LinkRate& rate) { return rate.measured ? "measured" : "modelled"; }

std::vector<Outcome> outcomes(const DesignRuns& design, const std::vector<LinkRate>& rates) {
  std::map<double, std::vector<const RunRecord*>> by_steps;
  for (const RunRecord& run : design.runs) {
    const double steps = run.summary("steps");
    if (run.finished() && !run.diverged() && steps > 0 &&
        std::isfinite(run.summary("test_accuracy"))) {
      by_steps[steps].push_back(&run);
    }
  }
  std::vector<Outcome> ends;
  for (const auto& [steps, runs] : by_steps) {
    std::vector<double> accuracies;
    for (const RunRecord* run : runs) accuracies.push_back(run->summary("test_accuracy"));
    Outcome end{.steps = steps,
                .runs = runs.size(),
                .accuracy = mean(accuracies),
                .lowest = std::ranges::min(accuracies),
                .highest = std::ranges::max(accuracies),
                .test_loss = mean_summary(runs, "test_loss"),
                .push_bits_per_value = mean_summary(runs, "push_bits_per_value"),
                .pull_bits_per_value = mean_summary(runs, "pull_bits_per_value"),
                .compression_ratio = mean_summary(runs, "compression_ratio"),
                .step_seconds = {}};
    for (const LinkRate& rate : rates) {
      std::vector<double> seconds;
      for (const RunRecord* run : runs) seconds.push_back(modelled_step_seconds(*run, rate));
      end.step_seconds.push_back(rate.measured ? design.measured.at(rate.bits_per_second)
                                               : mean(seconds));
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

Outcome last_outcome(const DesignRuns& design, const std::vector<LinkRate>& rates) {
  const auto ends = outcomes(design, rates);
  if (!ends.empty()) return ends.back();
  Outcome none{.steps = kNothing,
               .runs = 0,
               .accuracy = kNothing,
               .lowest = kNothing,
               .highest = kNothing,
               .test_loss = kNothing,
               .push_bits_per_value = kNothing,
               .pull_bits_per_value = kNothing,
               .compression_ratio = kNothing,
               .step_seconds = std::vector<double>(rates.size(), kNothing)};
  if (design.steps.empty()) return none;
  const StepRecord& last = design.steps.back();
  none.steps = last.step;
  none.push_bits_per_value = last.push_bits_per_value;
  none.pull_bits_per_value = last.pull_bits_per_value;
  return none;
}

}  // namespace tersewire::apps
