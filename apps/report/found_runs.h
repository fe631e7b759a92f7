// The runs that a report is about: those in the directories that it is given, and what `tersewire
// compare` wrote of them.
#pragma once

#include <compare>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "apps/run/run_record.h"

namespace tersewire::apps {

// A design of a comparison, as `compare` named it. Nothing in it where no comparison did.
struct Origin {
  std::filesystem::path comparison;
  std::string name;

  friend auto operator<=>(const Origin&, const Origin&) = default;
};

struct FoundRun {
  Origin origin;
  RunRecord run;
};

struct FoundRuns {
  std::vector<FoundRun> runs;
  std::string baseline;  // of the first comparison that names one; may be empty
  std::map<Origin, std::map<double, double>> lab;  // seconds of a step, by bits a second
  std::vector<double> rates;                       // in bits a second
  std::size_t missing_cells = 0;
  Notes notes;
};

// Reads directories of runs and of `tersewire compare`; one that is named twice counts once. Throws
// an Error, one sentence that says what to do, where one of them is neither, or is a run whose
// config.json is damaged.
FoundRuns find_runs(const std::vector<std::string>& directories);

}  // namespace tersewire::apps
