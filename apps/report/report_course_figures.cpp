#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

#include "apps/report/report_figures.h"

namespace tersewire::apps {
namespace {

// Longer turns from exchange to exchange are not believed.
constexpr double kMaxTurn = 1e9;

// Steps from one exchange to the next: local-steps=K, local-updates=K or weight-average:every=K.
std::size_t steps_per_exchange(const RunRecord& run) {
  double steps = std::fmax(run.config_number("local_steps"), run.config_number("local_updates"));
  const std::string exchange = run.config_text("exchange");
  const std::size_t every = exchange.find("every=");
  if (every != std::string::npos) steps = std::strtod(exchange.c_str() + every + 6, nullptr);
  return steps >= 1 && steps < kMaxTurn ? static_cast<std::size_t>(steps) : 1;
}

// How many lines of a course become a point: whole turns from exchange to exchange.
std::size_t lines_per_point(const DesignRuns& design) {
  const std::size_t least = design.steps.size() / kMaxPoints + 1;
  const std::size_t turn = steps_per_exchange(design.shown_run());
  return (least + turn - 1) / turn * turn;
}

// Calls `make` with each point's lines and the line before them, null for the first. The last point
// takes what is left over.
template <typename Make>
std::vector<std::vector<double>> course(const DesignRuns& design, Make&& make) {
  const std::size_t size = lines_per_point(design);
  const std::span<const StepRecord> steps = design.steps;
  std::vector<std::vector<double>> rows;
  for (std::size_t at = 0; at < steps.size();) {
    const std::size_t left = steps.size() - at;
    const auto lines = steps.subspan(at, left < 2 * size ? left : size);
    rows.push_back(make(lines, at == 0 ? nullptr : &steps[at - 1]));
    at += lines.size();
  }
  return rows;
}

double mean_of(std::span<const StepRecord> lines, double StepRecord::*member) {
  double sum = 0;
  for (const StepRecord& line : lines) sum += line.*member;
  return sum / static_cast<double>(lines.size());
}

std::vector<std::vector<double>> bits_course(const DesignRuns& design, double StepRecord::*bytes,
                                             double StepRecord::*values) {
  return course(design, [&](auto lines, const StepRecord* before) {
    const StepRecord& last = lines.back();
    const double new_bytes = last.*bytes - (before != nullptr ? before->*bytes : 0);
    const double new_values = last.*values - (before != nullptr ? before->*values : 0);
    return std::vector{last.step, new_values > 0 ? 8 * new_bytes / new_values : kNothing};
  });
}

}  // namespace

// 3LC, figure 4.
Figure loss_over_steps(const Designs& designs) {
  Figure figure{.id = "loss",
                .title = "Loss over steps",
                .hint =
                    "Loss of worker 0's batches; a point is the mean of the steps since the last. "
                    "Lower is better.",
                .keys = {"design"},
                .columns = {"step", "training_loss"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    add_group(figure, {design.name}, course(design, [](auto lines, const StepRecord*) {
                return std::vector{lines.back().step, mean_of(lines, &StepRecord::loss)};
              }));
  }
  return figure;
}

// 3LC, figure 4.
Figure accuracy_over_steps(const Designs& designs) {
  Figure figure{.id = "accuracy",
                .title = "Accuracy over steps",
                .hint =
                    "Accuracy on worker 0's batches, as means, and on the test data where steps "
                    "were observed (--observe-steps) and at the end. Higher is better.",
                .keys = {"on", "design"},
                .columns = {"step", "accuracy"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    add_group(figure, {"training batches", design.name},
              course(design, [](auto lines, const StepRecord*) {
                return std::vector{lines.back().step, mean_of(lines, &StepRecord::accuracy)};
              }));
  }
  for (const DesignRuns& design : designs.list) {
    std::vector<std::vector<double>> rows;
    for (const std::size_t i : spread(design.observed.size(), kMaxPoints)) {
      rows.push_back({design.observed[i].step, design.observed[i].test_accuracy});
    }
    const RunRecord& run = design.shown_run();
    const double last = run.summary("steps");
    // An observed step shows the model as it was before; a single end is no line.
    if (!rows.empty() && last >= rows.back()[0]) {
      rows.push_back({last + (last == rows.back()[0] ? 1 : 0), run.numbers().test_accuracy});
    }
    add_group(figure, {"test data", design.name}, std::move(rows));
  }
  return figure;
}

// 3LC, figure 6.
Figure bits_over_steps(const Designs& designs) {
  Figure figure{.id = "bits-per-value",
                .title = "Bits per value over steps",
                .hint =
                    "What a worker sends (push) and receives (pull), messages' heads included. "
                    "Without compression a value has 32 bits.",
                .keys = {"direction", "design"},
                .columns = {"step", "bits_per_value"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    add_group(figure, {"push", design.name},
              bits_course(design, &StepRecord::push_bytes, &StepRecord::push_values));
  }
  for (const DesignRuns& design : designs.list) {
    add_group(figure, {"pull", design.name},
              bits_course(design, &StepRecord::pull_bytes, &StepRecord::pull_values));
  }
  return figure;
}

}  // namespace tersewire::apps
