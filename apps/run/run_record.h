// What runs left behind, read back: config.json, summary.json, metrics.jsonl, observations.jsonl
// (docs/training.md). Files come from anywhere: what is damaged is left out and said so in a note,
// a sentence for people. One thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run/numbers/summary_numbers.h"

namespace tersewire::apps {

using Notes = std::vector<std::string>;

// A step as metrics.jsonl has it. Bytes and times count from the start; what is not there is a NaN.
struct StepRecord {
  double step = 0;
  double loss = 0;
  double accuracy = 0;
  double seconds = 0;
  double push_bytes = 0;
  double pull_bytes = 0;
  double push_values = 0;
  double pull_values = 0;
  double push_bits_per_value = 0;
  double pull_bits_per_value = 0;
};

// A tensor of an observed step; trainer/loop/observation.h has the meanings.
struct TensorRecord {
  std::string name;
  std::string kind;
  std::string codec;
  bool not_finite = false;
  double values = 0;
  double bits_per_value = 0;
  double rms = 0;
  double relative_error = 0;
  double residual_rms = 0;
  double residual_p95 = 0;
  double residual_max = 0;
  double limit = 0;              // of the histograms, which are of the same length, or empty
  std::vector<double> gradient;  // counts
  std::vector<double> decoded;
};

struct ObservedStep {
  double step = 0;
  double test_accuracy = 0;
  std::vector<TensorRecord> tensors;
};

class RunRecord {
 public:
  // Reads config.json and summary.json. Throws kNotFound where the directory is that of no run, and
  // kDataLoss where config.json is damaged.
  RunRecord(std::filesystem::path directory, Notes& notes);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  // Of config.json, what is text, a number or a switch.
  [[nodiscard]] const std::map<std::string, nlohmann::json>& config() const { return config_; }
  // Empty where config.json has no such text.
  [[nodiscard]] std::string config_text(const std::string& key) const;
  // A NaN where config.json has no such number.
  [[nodiscard]] double config_number(const std::string& key) const;
  // A number of summary.json; a NaN where there is none.
  [[nodiscard]] double summary(const std::string& key) const;
  [[nodiscard]] SummaryNumbers numbers() const;
  // The step time that summary.json models for fp32 on a link; a NaN where it does not.
  [[nodiscard]] double fp32_step_seconds(double bits_per_second) const;
  // Whether it came to its end: neither cut off nor interrupted.
  [[nodiscard]] bool finished() const { return summary_.is_object() && !interrupted_; }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  // Whether it came to its end having diverged().
  [[nodiscard]] bool diverged() const;

  // In the order of steps, each once. What the run decided itself (--codec auto) is a note.
  [[nodiscard]] std::vector<StepRecord> steps(Notes& notes) const;
  // The same; every step but the last keeps its `largest` largest tensors alone.
  [[nodiscard]] std::vector<ObservedStep> observed(std::size_t largest, Notes& notes) const;

 private:
  std::filesystem::path directory_;
  std::map<std::string, nlohmann::json> config_;
  nlohmann::json summary_;
  bool interrupted_ = false;
};

// The places of the largest tensors, at most so many, in their order.
std::vector<std::size_t> largest_of(const std::vector<TensorRecord>& tensors, std::size_t most);

// Throws an Error with the system's reason where a directory may not be entered.
void check_may_enter(const std::filesystem::path& directory);

// Whether a directory holds what a run leaves.
bool is_run(const std::filesystem::path& directory);

}  // namespace tersewire::apps
