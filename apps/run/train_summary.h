// What `tersewire train` tells at its end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/run/numbers/summary_numbers.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

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
