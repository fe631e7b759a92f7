// The designs that a report compares: runs that differ in seed and steps alone are one design.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/run_record.h"

namespace tersewire::apps {

struct LinkRate {
  std::string name;  // "10 Mbit/s"
  double bits_per_second = 0;
  // Whether a comparison measured the steps of all finished designs at it; they are modelled
  // otherwise.
  bool measured = false;
};

struct DesignRuns {
  std::string name;
  std::vector<RunRecord> runs;
  std::map<double, double> measured;  // seconds of a step in the lab, by bits a second
  // Of the run whose course is drawn, runs[shown]: the longest, by the first seed.
  std::size_t shown = 0;
  std::vector<StepRecord> steps;
  std::vector<ObservedStep> observed;

  [[nodiscard]] const RunRecord& shown_run() const { return runs[shown]; }
  // Of a step with fp32, which is modelled; NaN where steps at that rate were measured, with which
  // it does not compare.
  [[nodiscard]] double fp32_seconds(const LinkRate& rate) const;
};

struct Designs {
  std::vector<DesignRuns> list;
  // The one that others are compared with: of `tersewire compare`, or fp32; none where it is not
  // there.
  std::optional<std::size_t> baseline;
  std::vector<LinkRate> rates;
  // Whether all runs train the same model on the same data in the same batches: those alone can be
  // compared.
  bool same_job = true;
  Notes notes;
};

// Reads directories of runs and of `tersewire compare`. Throws an Error, one sentence that says
// what to do, where one of them is neither, or is a run whose config.json is damaged.
Designs read_designs(const std::vector<std::string>& directories);

// How many of the largest tensors are followed over steps.
inline constexpr std::size_t kFollowedTensors = 6;

}  // namespace tersewire::apps
