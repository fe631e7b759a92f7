#include "apps/compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "apps/cli/output.h"
#include "apps/cli/quantities.h"
#include "apps/run/front.h"
#include "apps/run/run_json.h"
#include "tersewire/counted.h"

namespace tersewire::apps {
namespace {

// Of the accuracies.
std::optional<double> sample_deviation(const std::vector<SummaryNumbers>& runs, double middle) {
  if (runs.size() < 2) return std::nullopt;
  double squares = 0;
  for (const SummaryNumbers& run : runs) {
    squares += (run.test_accuracy - middle) * (run.test_accuracy - middle);
  }
  return std::sqrt(squares / static_cast<double>(runs.size() - 1));
}

DesignMeans means_of(const std::vector<const CellResult*>& results) {
  if (results.empty()) return {};
  DesignMeans means;
  means.diverged = static_cast<std::size_t>(std::ranges::count_if(results, &CellResult::diverged));
  // Those that have diverged are no part of a mean, unless there is nothing else to show.
  std::vector<SummaryNumbers> runs;
  for (const CellResult* result : results) {
    if (!result->diverged || means.diverged == results.size()) runs.push_back(*result);
  }
  static_cast<SummaryNumbers&>(means) = mean(runs);
  means.runs = runs.size();
  means.accuracy_deviation = sample_deviation(runs, means.test_accuracy);
  return means;
}

// Three digits that count, as 3LC's tables have them.
std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

}  // namespace

std::vector<std::vector<DesignMeans>> means_of(const ComparePlan& plan,
                                               const std::vector<CellOutcome>& outcomes) {
  std::vector<std::vector<DesignMeans>> means(plan.designs.size());
  for (std::size_t design = 0; design < plan.designs.size(); ++design) {
    for (const StepCount& count : plan.steps) {
      std::vector<const CellResult*> results;
      for (std::size_t i = 0; i < plan.cells.size(); ++i) {
        const Cell& cell = plan.cells[i];
        if (cell.design != design || cell.steps != count.steps || !outcomes[i].result) continue;
        results.push_back(&*outcomes[i].result);
      }
      means[design].push_back(means_of(results));
    }
  }
  return means;
}

CompareReport::CompareReport(const ComparePlan& plan, const std::vector<CellOutcome>& outcomes,
                             LabSteps lab)
    : plan_(plan), outcomes_(outcomes), lab_(std::move(lab)), means_(means_of(plan, outcomes)) {
  for (const Design& design : plan.designs) width_ = std::max(width_, design.name.size());
}

bool CompareReport::is_measured(std::size_t design, std::size_t rate) const {
  // A speedup is over a time of the same kind.
  return lab_[design][rate].seconds && lab_[plan_.baseline][rate].seconds;
}

std::optional<double> CompareReport::step_seconds(std::size_t design, std::size_t count,
                                                  std::size_t rate, bool measured) const {
  if (measured) return lab_[design][rate].seconds;
  const DesignMeans& means = means_[design][count];
  if (means.runs == 0) return std::nullopt;
  return modelled_step_seconds(means, plan_.rates[rate].bits_per_second);
}

CompareReport::Step CompareReport::step(std::size_t design, std::size_t count,
                                        std::size_t rate) const {
  Step step;
  step.measured = is_measured(design, rate);
  step.seconds = step_seconds(design, count, rate, step.measured);
  const auto baseline = step_seconds(plan_.baseline, count, rate, step.measured);
  if (step.seconds && baseline) step.speedup = *baseline / *step.seconds;
  return step;
}

std::optional<double> CompareReport::difference(std::size_t design, std::size_t count) const {
  const DesignMeans& means = means_[design][count];
  const DesignMeans& baseline = means_[plan_.baseline][count];
  if (design == plan_.baseline || means.runs == 0 || baseline.runs == 0) return std::nullopt;
  return means.test_accuracy - baseline.test_accuracy;
}

std::size_t CompareReport::most_steps() const {
  return static_cast<std::size_t>(std::ranges::max_element(plan_.steps, {}, &StepCount::steps) -
                                  plan_.steps.begin());
}

std::vector<bool> CompareReport::front() const {
  std::vector<BitsAndAccuracy> points;
  for (const std::vector<DesignMeans>& by_steps : means_) {
    const DesignMeans& means = by_steps[most_steps()];
    const bool counts = means.runs > 0 && means.diverged == 0;
    points.push_back({means.push_bits_per_value + means.pull_bits_per_value,
                      counts ? means.test_accuracy : std::numeric_limits<double>::quiet_NaN()});
  }
  return front_of(points);
}

nlohmann::json CompareReport::cells_json(std::size_t design) const {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < plan_.cells.size(); ++i) {
    const Cell& cell = plan_.cells[i];
    if (cell.design != design) continue;
    const CellOutcome& outcome = outcomes_[i];
    nlohmann::json entry = {{"steps", cell.steps},
                            {"seed", cell.seed},
                            {"dir", cell_directory(cell).string()},
                            {"state", outcome.result            ? "done"
                                      : outcome.failure.empty() ? "missing"
                                                                : "failed"},
                            {"failure", outcome.failure}};
    if (outcome.result) {
      const CellResult& result = *outcome.result;
      for (const auto& [key, member] : kSummaryNumbers) entry[key] = result.*member;
      entry["final_loss"] = result.final_loss;
      entry["diverged_step"] = result.diverged_step;
      entry["parameters_checksum"] = result.parameters_checksum;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::json CompareReport::rates_json(std::size_t design, std::size_t count) const {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < plan_.rates.size(); ++i) {
    const Step step = this->step(design, count, i);
    list.push_back({{"name", plan_.rates[i].name},
                    {"bits_per_second", plan_.rates[i].bits_per_second},
                    {"step_seconds", optional_json(step.seconds)},
                    {"kind", step.measured ? "measured" : "modelled"},
                    {"speedup", optional_json(step.speedup)}});
    if (!lab_[design][i].obstacle.empty()) {
      list.back()["not_measured"] = lab_[design][i].obstacle;
    }
  }
  return list;
}

nlohmann::json CompareReport::means_json(std::size_t design, std::size_t count) const {
  const DesignMeans& means = means_[design][count];
  nlohmann::json json = {{"steps", plan_.steps[count].steps},
                         {"runs", means.runs},
                         {"rates", rates_json(design, count)},
                         {"difference", optional_json(difference(design, count))},
                         {"test_accuracy_deviation", optional_json(means.accuracy_deviation)}};
  for (const auto& [key, member] : kSummaryNumbers) {
    json[key] = means.runs > 0 ? nlohmann::json(means.*member) : nlohmann::json();
  }
  return json;
}

nlohmann::json CompareReport::json() const {
  const trainer::TrainConfig& config = plan_.configs[plan_.baseline];
  const std::vector<bool> front = this->front();
  nlohmann::json designs = nlohmann::json::array();
  for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
    nlohmann::json by_steps = nlohmann::json::array();
    for (std::size_t j = 0; j < plan_.steps.size(); ++j) by_steps.push_back(means_json(i, j));
    designs.push_back({{"name", plan_.designs[i].name},
                       {"config", config_json(plan_.configs[i])},
                       {"cells", cells_json(i)},
                       {"by_steps", by_steps},
                       {"on_front", static_cast<bool>(front[i])},
                       {"rates", rates_json(i, most_steps())}});
  }
  nlohmann::json steps = nlohmann::json::array();
  for (const StepCount& count : plan_.steps) {
    steps.push_back({{"name", count.name}, {"steps", count.steps}});
  }
  nlohmann::json rates = nlohmann::json::array();
  for (const Rate& rate : plan_.rates) {
    rates.push_back({{"name", rate.name}, {"bits_per_second", rate.bits_per_second}});
  }
  return {{"version", 1},
          {"recipe", plan_.recipe.empty() ? nlohmann::json() : nlohmann::json(plan_.recipe)},
          {"model", config.model},
          {"data", config.data},
          {"workers", config.job.workers},
          {"baseline", plan_.designs[plan_.baseline].name},
          {"full_steps", plan_.full_steps},
          {"steps", steps},
          {"seeds", plan_.seeds},
          {"rates", rates},
          {"designs", designs}};
}

std::string CompareReport::speedup_table(std::size_t count) const {
  const StepCount& steps = plan_.steps[count];
  std::string text = "\n" + counted(steps.steps, "step");
  if (steps.name.ends_with('%')) text += fmt::format(" ({})", steps.name);
  text += fmt::format("\n{:<{}}", "design", width_);
  for (const Rate& rate : plan_.rates) text += fmt::format(" {:>10}", "@ " + rate.name);
  text += fmt::format("  {:>16}  {:>10}  {:>9}\n", "accuracy, %", "difference", "test loss");
  for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
    text += fmt::format("{:<{}}", plan_.designs[i].name, width_);
    const DesignMeans& means = means_[i][count];
    for (std::size_t j = 0; j < plan_.rates.size(); ++j) {
      const Step step = this->step(i, count, j);
      const bool praised = step.speedup && means.diverged == 0;
      text += fmt::format(" {:>10}", !praised        ? "-"
                                     : step.measured ? three_digits(*step.speedup)
                                                     : "~" + three_digits(*step.speedup));
    }
    std::string accuracy = means.runs > 0 ? fmt::format("{:.2f}", 100 * means.test_accuracy) : "-";
    if (means.diverged > 0) {
      accuracy += " diverged";
    } else if (means.accuracy_deviation) {
      accuracy += fmt::format(" +- {:.2f}", 100 * *means.accuracy_deviation);
    }
    const auto difference = this->difference(i, count);
    text += fmt::format("  {:>16}  {:>10}  {:>9}", accuracy,
                        difference ? fmt::format("{:+.2f}", 100 * *difference) : "",
                        means.runs > 0 ? decimals_text(means.test_loss, 4) : "-");
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string CompareReport::traffic_table() const {
  const std::size_t count = most_steps();
  std::string text =
      fmt::format("\nTraffic over {}\n{:<{}} {:>10} {:>12} {:>12} {:>18} {:>12}\n",
                  counted(plan_.steps[count].steps, "step"), "design", width_, "ratio",
                  "bits pushed", "bits pulled", "busiest node, step", "accuracy, %");
  const std::vector<bool> front = this->front();
  for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
    const DesignMeans& means = means_[i][count];
    if (means.runs == 0) continue;
    text += fmt::format("{:<{}} {:>10} {:>12.3f} {:>12.3f} {:>18} {:>12.2f}{}\n",
                        plan_.designs[i].name, width_, three_digits(means.compression_ratio) + "x",
                        means.push_bits_per_value, means.pull_bits_per_value,
                        bytes_text(means.busiest_node_bytes), 100 * means.test_accuracy,
                        front[i]             ? " *"
                        : means.diverged > 0 ? " diverged"
                                             : "");
  }
  return text + "* on the front: no other is as accurate with fewer bits, pushed and pulled.\n";
}

std::string CompareReport::diverged_text() const {
  std::string text;
  for (std::size_t i = 0; i < plan_.cells.size(); ++i) {
    const Cell& cell = plan_.cells[i];
    if (!outcomes_[i].result || !outcomes_[i].result->diverged) continue;
    const nlohmann::json& step = outcomes_[i].result->diverged_step;
    text += fmt::format("{} with {} and seed {} diverged{}.\n", plan_.designs[cell.design].name,
                        counted(cell.steps, "step"), cell.seed,
                        step.is_null() ? "" : " at step " + step.dump());
  }
  if (text.empty()) return text;
  return text +
         "diverged: at the end the loss was not finite, or ten times its best. Accuracy and "
         "speedup are\nmeaningless; use a lower lr, a longer warm-up or a milder codec.\n";
}

std::string CompareReport::legend() const {
  bool modelled = false;
  bool measured = false;
  std::set<std::string> obstacles;
  std::string baseline;
  for (std::size_t j = 0; j < plan_.rates.size(); ++j) {
    for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
      (is_measured(i, j) ? measured : modelled) = true;
      if (!lab_[i][j].obstacle.empty()) obstacles.insert(lab_[i][j].obstacle);
    }
    const Step step = this->step(plan_.baseline, most_steps(), j);
    if (!step.seconds) continue;
    baseline += fmt::format("{}{}{} at {}", baseline.empty() ? "" : ", ", step.measured ? "" : "~",
                            seconds_text(*step.seconds), plan_.rates[j].name);
  }
  std::string text;
  if (!baseline.empty()) {
    text += fmt::format("\nSpeedups are over {}, whose step takes {}.\n",
                        plan_.designs[plan_.baseline].name, baseline);
  }
  if (modelled) {
    text +=
        "~ is modelled: the busiest node's measured bytes through one link of that rate, after "
        "the\n"
        "measured processor time of a worker's step; nothing overlapped.\n";
  }
  if (measured)
    text +=
        "Without ~ a step's time is measured in the lab, with made-up gradients "
        "(docs/comparing.md).\n";
  for (const std::string& obstacle : obstacles)
    text += fmt::format("Not measured: {}.\n", obstacle);
  text += diverged_text();
  if (plan_.seeds.size() > 1) {
    text += fmt::format("Accuracies are means of {} seeds, with the deviation of a sample.\n",
                        plan_.seeds.size());
  }
  return text;
}

std::string CompareReport::text() const {
  const trainer::TrainConfig& config = plan_.configs[plan_.baseline];
  std::string text = fmt::format(
      "\n{}{} on {}, {}: speedup over {}, test accuracy\n",
      plan_.recipe.empty() ? "" : fmt::format("Recipe {}: ", plan_.recipe), config.model,
      config.data, counted(config.job.workers, "worker"), plan_.designs[plan_.baseline].name);
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) text += speedup_table(i);
  return text + traffic_table() + legend();
}

}  // namespace tersewire::apps
