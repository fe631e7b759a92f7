// What the files are called that runs and comparisons leave in their directories.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace tersewire::apps {

// Of a run (docs/training.md).
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kObservationsFile = "observations.jsonl";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kDryFile = "dry.json";
inline constexpr const char* kDecisionsFile = "decisions.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kCheckpointsFolder = "checkpoints";

// Before the rest of the name of each file that is written for TensorBoard.
inline constexpr const char* kTensorboardPrefix = "events.out.tfevents.";

inline bool is_of_a_run(std::string_view name) {
  const auto names = {kConfigFile, kMetricsFile,   kObservationsFile, kSummaryFile,
                      kDryFile,    kDecisionsFile, kModelFile,        kCheckpointsFolder};
  return std::ranges::find(names, name) != names.end();
}

// Of a comparison (docs/comparing.md).
inline constexpr const char* kPlanFile = "compare.json";
inline constexpr const char* kResultsFile = "results.json";
inline constexpr const char* kCellsFolder = "cells";

}  // namespace tersewire::apps
