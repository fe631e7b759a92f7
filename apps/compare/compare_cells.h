// Runs the cells of a comparison, each a process of `tersewire train`, and reads what they left.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/compare_plan.h"
#include "apps/run/numbers/summary_numbers.h"

namespace tersewire::apps {

// What a whole run came to.
struct CellResult : SummaryNumbers {
  nlohmann::json final_loss;     // null where it is not finite
  nlohmann::json diverged_step;  // null where no step is known
  bool diverged = false;
  std::string parameters_checksum;
};

struct CellOutcome {
  std::optional<CellResult> result;
  std::string failure;  // why there is none, where it failed
};

// Where a cell's run is, below the comparison's directory.
std::filesystem::path cell_directory(const Cell& cell);

// Runs those whose directory below `out` holds no whole run, `jobs` at a time, and returns what
// there is of each, in the plan's order. A run that was cut off is begun again. What fails is said
// on stderr, and the others go on. Returns early once `interrupted` is set: what had not ended then
// has neither a result nor a failure. Output and errors of each are in logs/. Throws an Error where
// no process can be started.
std::vector<CellOutcome> run_cells(const ComparePlan& plan, const std::filesystem::path& out,
                                   std::size_t jobs);

}  // namespace tersewire::apps
