#include "apps/run/run_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <numeric>
#include <set>
#include <system_error>

#include "apps/cli/failures.h"
#include "apps/run/numbers/json_object.h"
#include "apps/run/numbers/object_lines.h"
#include "apps/run/numbers/traffic_ratios.h"
#include "apps/run/run_files.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMaxBins = 4096;

void tell_damage(const ObjectLines& lines, const fs::path& file, Notes& notes) {
  const std::size_t damaged = lines.damaged_within();
  if (damaged == 0) return;
  notes.push_back(fmt::format("{} {} of {} cannot be read and {} left out.", damaged,
                              damaged == 1 ? "line" : "lines", file.string(),
                              damaged == 1 ? "is" : "are"));
}

std::vector<double> counts_of(const Json& histogram, const char* key) {
  const auto found = histogram.find(key);
  if (found == histogram.end() || !found->is_array() || found->size() > kMaxBins) return {};
  std::vector<double> counts;
  for (const Json& count : *found) {
    if (!count.is_number() || !(count.get<double>() >= 0)) return {};
    counts.push_back(count.get<double>());
  }
  return counts;
}

void read_histograms(const Json& tensor, TensorRecord& record) {
  const auto found = tensor.find("histogram");
  if (found == tensor.end() || !found->is_object()) return;
  record.limit = number_of(*found, "limit");
  record.gradient = counts_of(*found, "gradient");
  record.decoded = counts_of(*found, "decoded");
  if (record.gradient.size() == record.decoded.size() && record.limit > 0) return;
  record.gradient.clear();
  record.decoded.clear();
}

TensorRecord tensor_record(const Json& tensor) {
  TensorRecord record;
  record.name = text_of(tensor, "name");
  record.kind = text_of(tensor, "kind");
  record.codec = text_of(tensor, "codec");
  const auto not_finite = tensor.find("not_finite");
  record.not_finite = not_finite != tensor.end() && *not_finite == true;
  record.values = number_of(tensor, "values");
  record.bits_per_value = number_of(tensor, "bits_per_value");
  if (record.not_finite) {
    // Its other numbers say nothing.
    record.rms = record.relative_error = kNone;
    record.residual_rms = record.residual_p95 = record.residual_max = kNone;
    return record;
  }
  record.rms = number_of(tensor, "rms");
  record.relative_error = number_of(tensor, "relative_error");
  record.residual_rms = number_of(tensor, "residual_rms");
  record.residual_p95 = number_of(tensor, "residual_p95");
  record.residual_max = number_of(tensor, "residual_max");
  read_histograms(tensor, record);
  return record;
}

ObservedStep observed_step(const Json& line) {
  ObservedStep step{number_of(line, "step"), number_of(line, "test_accuracy"), {}};
  const auto tensors = line.find("tensors");
  if (tensors == line.end() || !tensors->is_array()) return step;
  std::set<std::string> names;
  for (const Json& tensor : *tensors) {
    if (!tensor.is_object()) continue;
    TensorRecord record = tensor_record(tensor);
    if (record.values > 0 && names.insert(record.name).second) {
      step.tensors.push_back(std::move(record));
    }
  }
  return step;
}

void keep_largest(std::vector<TensorRecord>& tensors, std::size_t most) {
  std::vector<TensorRecord> kept;
  for (const std::size_t i : largest_of(tensors, most)) kept.push_back(std::move(tensors[i]));
  tensors = std::move(kept);
}

// What a run with --codec auto decided in a step. What came of a decision follows it, in a sentence
// that begins with it.
void tell_decisions(const nlohmann::json& line, const std::filesystem::path& run, Notes& notes) {
  const auto decisions = line.find("decisions");
  if (decisions == line.end() || !decisions->is_array()) return;
  for (const nlohmann::json& sentence : *decisions) {
    if (!sentence.is_string()) continue;
    const std::string note = run.filename().string() + ", " + sentence.get<std::string>();
    if (!notes.empty() && note.starts_with(notes.back())) notes.pop_back();
    notes.push_back(note);
  }
}

}  // namespace

std::vector<std::size_t> largest_of(const std::vector<TensorRecord>& tensors, std::size_t most) {
  std::vector<std::size_t> places(tensors.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(
      places, [&](std::size_t a, std::size_t b) { return tensors[a].values > tensors[b].values; });
  places.resize(std::min(places.size(), most));
  std::ranges::sort(places);
  return places;
}

void check_may_enter(const fs::path& directory) {
  // What is in there would seem not to be.
  if (::access(directory.c_str(), X_OK) != 0) fail_file(directory.string(), "read", errno);
}

bool is_run(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / kConfigFile, error) || fs::exists(directory / kMetricsFile, error);
}

RunRecord::RunRecord(fs::path directory, Notes& notes) : directory_(std::move(directory)) {
  if (!is_run(directory_)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{} is not a run: it holds neither config.json nor metrics.jsonl; name a "
                    "directory that 'tersewire train --out' made",
                    directory_.string()));
  }
  const Json config = json_object_if_any(directory_ / kConfigFile);
  if (!config.is_object()) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{} is missing or damaged; name the directory of another run",
                            (directory_ / kConfigFile).string()));
  }
  for (const auto& [key, value] : config.items()) {
    if (value.is_primitive() && !value.is_null()) config_[key] = value;
  }
  const fs::path summary = directory_ / kSummaryFile;
  summary_ = json_object_if_any(summary);
  std::error_code error;
  if (summary_.is_object()) {
    const auto interrupted = summary_.find("interrupted");
    interrupted_ = interrupted != summary_.end() && *interrupted == true;
  } else if (fs::exists(summary, error)) {
    notes.push_back(summary.string() + " is damaged; the run is shown as one that was cut off.");
  }
}

std::string RunRecord::config_text(const std::string& key) const {
  const auto found = config_.find(key);
  return found != config_.end() && found->second.is_string() ? found->second.get<std::string>()
                                                             : "";
}

double RunRecord::config_number(const std::string& key) const {
  const auto found = config_.find(key);
  return found != config_.end() && found->second.is_number() ? found->second.get<double>() : kNone;
}

double RunRecord::summary(const std::string& key) const { return number_of(summary_, key); }

SummaryNumbers RunRecord::numbers() const {
  SummaryNumbers numbers;
  for (const auto& [key, member] : kSummaryNumbers) numbers.*member = summary(key);
  return numbers;
}

bool RunRecord::diverged() const { return finished() && tersewire::apps::diverged(summary_); }

double RunRecord::fp32_step_seconds(double bits_per_second) const {
  if (!summary_.is_object()) return kNone;
  const auto modelled = summary_.find("modelled");
  if (modelled == summary_.end() || !modelled->is_object()) return kNone;
  const auto found = modelled->find(rate_name(bits_per_second));
  return found == modelled->end() ? kNone : number_of(*found, "fp32_step_seconds");
}

std::vector<StepRecord> RunRecord::steps(Notes& notes) const {
  std::vector<StepRecord> steps;
  const fs::path file = directory_ / kMetricsFile;
  ObjectLines lines(file);
  while (const auto line = lines.next()) {
    steps.push_back({.step = number_of(*line, "step"),
                     .loss = number_of(*line, "loss"),
                     .accuracy = number_of(*line, "accuracy"),
                     .seconds = number_of(*line, "seconds"),
                     .push_bytes = number_of(*line, "push_bytes"),
                     .pull_bytes = number_of(*line, "pull_bytes"),
                     .push_values = number_of(*line, "push_values"),
                     .pull_values = number_of(*line, "pull_values"),
                     .push_bits_per_value = number_of(*line, "push_bits_per_value"),
                     .pull_bits_per_value = number_of(*line, "pull_bits_per_value")});
    tell_decisions(*line, directory_, notes);
  }
  tell_damage(lines, file, notes);
  return steps;
}

std::vector<ObservedStep> RunRecord::observed(std::size_t largest, Notes& notes) const {
  std::vector<ObservedStep> steps;
  const fs::path file = directory_ / kObservationsFile;
  ObjectLines lines(file);
  while (const auto line = lines.next()) {
    if (!steps.empty()) keep_largest(steps.back().tensors, largest);
    steps.push_back(observed_step(*line));
  }
  tell_damage(lines, file, notes);
  return steps;
}

}  // namespace tersewire::apps
