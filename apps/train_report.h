// What `tersewire train` tells: progress while it runs, and at the end a table or JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/train.h"

namespace tersewire::apps {

// Progress on stderr: a bar that redraws itself on a terminal, else a plain line now and then. What
// cannot be written is left out. One thread at a time.
class TrainProgress {
 public:
  explicit TrainProgress(std::uint64_t steps);
  ~TrainProgress() { finish(); }
  TrainProgress(const TrainProgress&) = delete;
  TrainProgress& operator=(const TrainProgress&) = delete;

  void show(const trainer::StepReport& report);
  // Ends the bar's line.
  void finish();

 private:
  [[nodiscard]] bool is_due(const trainer::StepReport& report);
  void smooth(const trainer::StepReport& report);

  std::uint64_t steps_;
  bool terminal_;
  bool line_open_ = false;
  std::uint64_t next_line_ = 0;
  std::chrono::steady_clock::time_point shown_{};
  double loss_ = 0;
  double accuracy_ = 0;
  std::uint64_t seen_ = 0;
};

// One line of metrics.jsonl.
nlohmann::json metrics_json(const trainer::StepReport& report);

// The run's configuration as config.json holds it.
nlohmann::json config_json(const trainer::TrainConfig& config);

// What a run came to; everything that is printed or written at its end.
class TrainSummary {
 public:
  TrainSummary(const trainer::TrainConfig& config, const trainer::TrainResult& result,
               bool interrupted);

  [[nodiscard]] nlohmann::json json() const;
  [[nodiscard]] std::string table() const;

 private:
  // Seconds a step would take if the busiest node's link had `bits_per_second`, and all that
  // crosses it did so after the computation: no overlap.
  [[nodiscard]] double modelled_step(double bits_per_second) const;
  [[nodiscard]] double modelled_fp32_step(double bits_per_second) const;
  // The share of exchanges, each from its first push to its last arrival, in which workers did not
  // stand waiting: 0 to 1.
  [[nodiscard]] double overlap() const;
  [[nodiscard]] std::string codec_text() const;

  trainer::TrainConfig config_;
  trainer::TrainResult result_;
  bool interrupted_;
};

}  // namespace tersewire::apps
