// metrics.jsonl and observations.jsonl, step by step.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/run_directory.h"
#include "tersewire/error.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

// Writes metrics as they come. Where that fails the run ends after the steps under way, and what
// was measured is still shown. One thread at a time.
class MetricsWriter {
 public:
  // `directory` must outlive it.
  explicit MetricsWriter(RunDirectory& directory)
      : directory_(directory), before_(directory.last_metrics()) {}

  void add(const trainer::StepReport& report);
  void add(const trainer::Observation& observation);
  // What has been decided stands in the next step's line.
  void add_decision(const std::string& sentence) { decided_.push_back(sentence); }
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  // Runs what writes a line, unless that has failed before.
  template <typename Task>
  void attempt(const Task& task);
  [[nodiscard]] nlohmann::json since_the_start(nlohmann::json line) const;

  RunDirectory& directory_;
  nlohmann::json before_;  // the last line that a resumed run found
  std::vector<std::string> decided_;
  std::optional<Error> failure_;
};

}  // namespace tersewire::apps
