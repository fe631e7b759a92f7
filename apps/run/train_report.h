// What `tersewire train` tells: progress while it runs, and at the end a table or JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/progress_line.h"
#include "apps/run/summary_numbers.h"
#include "trainer/train.h"

namespace tersewire::apps {

// Progress on stderr. One thread at a time.
class TrainProgress {
 public:
  // `before`: steps that a resumed run does not take again.
  TrainProgress(std::uint64_t steps, std::uint64_t before)
      : steps_(steps), before_(before), line_(steps) {}

  void show(const trainer::StepReport& report);
  // Ends the bar's line.
  void finish() { line_.finish(); }

 private:
  void smooth(const trainer::StepReport& report);

  std::uint64_t steps_;
  std::uint64_t before_;
  ProgressLine line_;
  double loss_ = 0;
  double accuracy_ = 0;
  std::uint64_t seen_ = 0;
};

// One line of metrics.jsonl.
nlohmann::json metrics_json(const trainer::StepReport& report);

// One line of observations.jsonl.
nlohmann::json observation_json(const trainer::Observation& observation);

// The run's configuration as config.json holds it.
nlohmann::json config_json(const trainer::TrainConfig& config);

// What a run came to; everything that is printed or written at its end.
class TrainSummary {
 public:
  TrainSummary(const trainer::TrainConfig& config, const trainer::TrainResult& result,
               bool interrupted);

  [[nodiscard]] nlohmann::json json() const;
  // What was saved, and of a run that diverged that alone.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] bool interrupted() const { return interrupted_; }

 private:
  [[nodiscard]] std::string traffic_table() const;
  // Those that were counted and timed.
  [[nodiscard]] double measured_steps() const {
    return static_cast<double>(result_.steps - result_.counted_after);
  }
  // Those after the last resumption.
  [[nodiscard]] double own_steps() const {
    return static_cast<double>(result_.steps - result_.resumed_after);
  }
  [[nodiscard]] SummaryNumbers numbers() const;
  [[nodiscard]] double modelled_fp32_step(double bits_per_second) const;
  // The share of exchanges, each from its first push to its last arrival, in which workers stood
  // waiting: 0 to 1.
  [[nodiscard]] double waited() const;
  [[nodiscard]] std::string codec_text() const;

  trainer::TrainConfig config_;
  trainer::TrainResult result_;
  bool interrupted_;
};

}  // namespace tersewire::apps
