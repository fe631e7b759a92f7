#include "apps/report/report_outcomes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "apps/report/report_figure.h"

namespace tersewire::apps {
const char* times_name(const LinkRate& rate) { return rate.measured ? "measured" : "modelled"; }

std::vector<Outcome> outcomes(const DesignRuns& design, const std::vector<LinkRate>& rates) {
  std::map<double, std::vector<SummaryNumbers>> by_steps;
  for (const RunRecord& run : design.runs) {
    const double steps = run.summary("steps");
    const SummaryNumbers numbers = run.numbers();
    if (run.finished() && !run.diverged() && steps > 0 && std::isfinite(numbers.test_accuracy)) {
      by_steps[steps].push_back(numbers);
    }
  }
  std::vector<Outcome> ends;
  for (const auto& [steps, runs] : by_steps) {
    const auto [lowest, highest] = std::ranges::minmax(runs, {}, &SummaryNumbers::test_accuracy);
    Outcome end{.steps = steps,
                .runs = runs.size(),
                .means = mean(runs),
                .lowest = lowest.test_accuracy,
                .highest = highest.test_accuracy,
                .step_seconds = {}};
    for (const LinkRate& rate : rates) {
      end.step_seconds.push_back(rate.measured
                                     ? design.measured.at(rate.bits_per_second)
                                     : modelled_step_seconds(end.means, rate.bits_per_second));
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
               .means = mean({}),
               .lowest = kNothing,
               .highest = kNothing,
               .step_seconds = std::vector<double>(rates.size(), kNothing)};
  if (design.steps.empty()) return none;
  const StepRecord& last = design.steps.back();
  none.steps = last.step;
  none.means.push_bits_per_value = last.push_bits_per_value;
  none.means.pull_bits_per_value = last.pull_bits_per_value;
  return none;
}

}  // namespace tersewire::apps
