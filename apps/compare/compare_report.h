// What `tersewire compare` tells at its end: 3LC's Table 1 and Table 2, and results.json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/compare_cells.h"
#include "apps/compare/compare_plan.h"

namespace tersewire::apps {

// Seconds of a step in the lab.
struct LabStep {
  std::optional<double> seconds;
  std::string obstacle;  // why there are none, where one tried
};

// By design, then by rate.
using LabSteps = std::vector<std::vector<LabStep>>;

// Means over those runs of a design and a number of steps that came to their end.
struct DesignMeans : SummaryNumbers {
  std::size_t runs = 0;                      // 0: everything is
  std::size_t diverged = 0;                  // of them
  std::optional<double> accuracy_deviation;  // of a sample; with two runs at least
};

// By design, then by number of steps, as the plan has them.
std::vector<std::vector<DesignMeans>> means_of(const ComparePlan& plan,
                                               const std::vector<CellOutcome>& outcomes);

class CompareReport {
 public:
  CompareReport(const ComparePlan& plan, const std::vector<CellOutcome>& outcomes, LabSteps lab);

  // As docs/comparing.md has it.
  [[nodiscard]] nlohmann::json json() const;
  [[nodiscard]] std::string text() const;

 private:
  struct Step {
    std::optional<double> seconds;  // none where no run came to its end
    bool measured = false;
    std::optional<double> speedup;  // over the baseline's, of the same kind
  };

  [[nodiscard]] bool is_measured(std::size_t design, std::size_t rate) const;
  [[nodiscard]] std::optional<double> step_seconds(std::size_t design, std::size_t count,
                                                   std::size_t rate, bool measured) const;
  [[nodiscard]] Step step(std::size_t design, std::size_t count, std::size_t rate) const;
  // Of the accuracy, in 0 to 1.
  [[nodiscard]] std::optional<double> difference(std::size_t design, std::size_t count) const;
  // The place of the largest number of steps.
  [[nodiscard]] std::size_t most_steps() const;

  // Of bits against accuracy, over the largest number of steps, by design.
  [[nodiscard]] std::vector<bool> front() const;

  [[nodiscard]] nlohmann::json cells_json(std::size_t design) const;
  [[nodiscard]] nlohmann::json rates_json(std::size_t design, std::size_t count) const;
  [[nodiscard]] nlohmann::json means_json(std::size_t design, std::size_t count) const;
  [[nodiscard]] std::string speedup_table(std::size_t count) const;
  [[nodiscard]] std::string traffic_table() const;
  [[nodiscard]] std::string diverged_text() const;
  [[nodiscard]] std::string legend() const;

  const ComparePlan& plan_;
  const std::vector<CellOutcome>& outcomes_;
  LabSteps lab_;
  std::vector<std::vector<DesignMeans>> means_;
  std::size_t width_ = 6;  // of the longest name
};

}  // namespace tersewire::apps
