#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "apps/report/design_settings.h"
#include "apps/report/report_figures.h"
#include "apps/report/report_outcomes.h"
#include "apps/run/front.h"
#include "apps/run/numbers/traffic_ratios.h"

namespace tersewire::apps {
namespace {

// A speedup is over the baseline's step; a report without one goes by the fp32 that the run itself
// models.
std::vector<double> design_row(const DesignRuns& design, const std::vector<LinkRate>& rates,
                               const std::optional<Outcome>& baseline) {
  const Outcome end = last_outcome(design, rates);
  std::vector<double> row{
      end.steps,
      static_cast<double>(end.runs),
      end.means.test_accuracy,
      end.runs > 1 ? end.lowest : kNothing,
      end.runs > 1 ? end.highest : kNothing,
      baseline ? 100 * (end.means.test_accuracy - baseline->means.test_accuracy) : kNothing,
      end.means.test_loss,
      end.means.push_bits_per_value,
      end.means.pull_bits_per_value,
      end.means.compression_ratio};
  for (std::size_t rate = 0; rate < rates.size(); ++rate) {
    const double reference =
        baseline ? baseline->step_seconds[rate] : design.fp32_seconds(rates[rate]);
    row.push_back(end.step_seconds[rate]);
    row.push_back(reference / end.step_seconds[rate]);
  }
  return row;
}

// Where a design's runs ended.
std::vector<std::vector<double>> ends_over_time(const std::vector<Outcome>& ends,
                                                std::size_t rate) {
  std::vector<std::vector<double>> rows;
  for (const Outcome& end : ends) {
    rows.push_back({end.steps * end.step_seconds[rate], end.means.test_accuracy, end.lowest,
                    end.highest, end.steps, static_cast<double>(end.runs)});
  }
  return rows;
}

// The tests of one run on its way. An observed step shows the model as it was before.
std::vector<std::vector<double>> course_over_time(const DesignRuns& design, double step_seconds) {
  std::vector<std::vector<double>> rows;
  for (const std::size_t i : spread(design.observed.size(), kMaxPoints)) {
    const ObservedStep& step = design.observed[i];
    const double steps = step.step - 1;
    if (!std::isfinite(step.test_accuracy) || steps < 1) continue;
    rows.push_back({steps * step_seconds, step.test_accuracy, kNothing, kNothing, steps, 1});
  }
  return rows;
}

}  // namespace

// 3LC, tables 1 and 2.
Figure designs_table(const Designs& designs) {
  Figure figure{.id = "designs",
                .title = "In numbers",
                .hint =
                    "Accuracies are those of the longest runs, as means over repeats. Bits are "
                    "bits per value of the model as sent, 32 without compression.",
                .keys = {"design"},
                .columns = {"steps", "runs", "test_accuracy", "lowest_accuracy", "highest_accuracy",
                            "accuracy_difference_points", "test_loss", "push_bits_per_value",
                            "pull_bits_per_value", "compression_ratio"},
                .groups = {}};
  for (const LinkRate& rate : designs.rates) {
    figure.columns.push_back(fmt::format("{}_step_seconds at {}", times_name(rate), rate.name));
    figure.columns.push_back("speedup at " + rate.name);
  }
  std::optional<Outcome> baseline;
  if (designs.baseline && designs.same_job) {
    baseline = last_outcome(designs.list[*designs.baseline], designs.rates);
  }
  for (const DesignRuns& design : designs.list) {
    add_group(figure, {design.name}, {design_row(design, designs.rates, baseline)});
  }
  drop_empty_columns(figure);
  return figure;
}

// One point compares with nothing.
Figure accuracy_for_bits(const Designs& designs) {
  Figure figure{.id = "accuracy-for-bits",
                .title = "What accuracy costs in bits",
                .hint =
                    "Bits per value, pushed and pulled. Further left is cheaper, higher is better: "
                    "below the line of the front, another design is as accurate with fewer bits.",
                .keys = {"design"},
                .columns = {"bits_per_value", "test_accuracy", "lowest_accuracy",
                            "highest_accuracy", "on_front"},
                .groups = {}};
  std::vector<Outcome> ends;
  std::vector<BitsAndAccuracy> points;
  for (const DesignRuns& design : designs.list) {
    const Outcome end = ends.emplace_back(last_outcome(design, designs.rates));
    points.push_back(
        {end.means.push_bits_per_value + end.means.pull_bits_per_value, end.means.test_accuracy});
  }
  const std::vector<bool> front = front_of(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].bits) || !std::isfinite(points[i].accuracy)) continue;
    add_group(figure, {designs.list[i].name},
              {{points[i].bits, points[i].accuracy, ends[i].lowest, ends[i].highest,
                front[i] ? 1.0 : 0.0}});
  }
  if (figure.groups.size() < 2 || !designs.same_job) figure.groups.clear();
  return figure;
}

// 3LC, figure 3.
Figure accuracy_over_time(const Designs& designs) {
  Figure figure{.id = "accuracy-over-time",
                .title = "How accurate, how soon",
                .hint =
                    "Tests at the end of each run, and during it where runs of one length were "
                    "observed. Further left is sooner, higher is better. A time is the steps times "
                    "a step's time at that rate.",
                .keys = {"rate", "times", "design"},
                .columns = {"seconds", "test_accuracy", "lowest_accuracy", "highest_accuracy",
                            "steps", "runs"},
                .groups = {}};
  // Where there are runs of several lengths, those compare: each had its whole schedule.
  const bool one_length = std::ranges::all_of(designs.list, [&](const DesignRuns& design) {
    return outcomes(design, designs.rates).size() < 2;
  });
  std::size_t points = 0;
  for (std::size_t rate = 0; rate < designs.rates.size(); ++rate) {
    for (const DesignRuns& design : designs.list) {
      const auto ends = outcomes(design, designs.rates);
      if (ends.empty() || !std::isfinite(ends.back().step_seconds[rate])) continue;
      auto rows = one_length ? course_over_time(design, ends.back().step_seconds[rate])
                             : std::vector<std::vector<double>>();
      std::ranges::copy(ends_over_time(ends, rate), std::back_inserter(rows));
      points += rows.size();
      const LinkRate& link = designs.rates[rate];
      add_group(figure, {link.name, times_name(link), design.name}, std::move(rows));
    }
  }
  // One point at each rate compares with nothing.
  if (points <= designs.rates.size()) figure.groups.clear();
  return figure;
}

// INCEPTIONN, figure 12.
Figure step_time(const Designs& designs) {
  Figure figure{.id = "step-time",
                .title = "Where a step's time goes",
                .hint =
                    "At a link rate, modelled: measured computation and coding, then the busiest "
                    "node's bytes on its link. As run: measured on the machine of the run, "
                    "whose processors its nodes may have shared.",
                .keys = {"rate", "times", "design"},
                .columns = {"computation_seconds", "codec_seconds", "wire_seconds",
                            "waiting_seconds", "other_seconds"},
                .groups = {}};
  for (const LinkRate& rate : designs.rates) {
    for (const DesignRuns& design : designs.list) {
      const SummaryNumbers run = design.shown_run().numbers();
      if (!std::isfinite(modelled_step_seconds(run, rate.bits_per_second))) continue;
      figure.groups.push_back(
          {{rate.name, "modelled", design.name},
           {{run.compute_seconds, run.codec_seconds,
             wire_seconds(run.busiest_node_bytes, rate.bits_per_second), kNothing, kNothing}}});
    }
  }
  for (const DesignRuns& design : designs.list) {
    const SummaryNumbers run = design.shown_run().numbers();
    const double other =
        run.step_seconds - run.compute_seconds - run.codec_seconds - run.wait_seconds;
    if (!std::isfinite(other)) continue;
    figure.groups.push_back({{"as run", "measured", design.name},
                             {{run.compute_seconds, run.codec_seconds, kNothing, run.wait_seconds,
                               std::max(other, 0.0)}}});
  }
  return figure;
}

// 3LC, figure 5: designs that differ in s alone, at least two of them.
Figure sensitivity(const Designs& designs) {
  Figure figure{.id = "sensitivity",
                .title = "What the sparsity multiplier s does",
                .hint =
                    "A higher s sends less and learns later. Points are designs that differ in "
                    "s alone.",
                .keys = {"family"},
                .columns = {"s", "test_accuracy", "push_bits_per_value", "pull_bits_per_value"},
                .groups = {}};
  std::map<std::string, std::map<double, const DesignRuns*>> families;
  for (const DesignRuns& design : designs.list) {
    const auto setting = codec_setting(design.shown_run(), "s");
    if (setting) families[setting->rest].emplace(setting->value, &design);
  }
  for (const auto& [rest, by_s] : families) {
    if (by_s.size() < 2) continue;
    std::vector<std::vector<double>> rows;
    for (const auto& [s, design] : by_s) {
      const Outcome end = last_outcome(*design, designs.rates);
      rows.push_back({s, end.means.test_accuracy, end.means.push_bits_per_value,
                      end.means.pull_bits_per_value});
    }
    add_group(figure, {by_s.begin()->second->name}, std::move(rows));
  }
  return figure;
}

}  // namespace tersewire::apps
