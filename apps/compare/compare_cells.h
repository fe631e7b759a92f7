// Runs the cells of a comparison, each a process of `tersewire train`, and reads what they left.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/compare/compare_plan.h"

namespace tersewire::apps {

// What of a run, or of the mean of several, is compared.
struct ComparedNumbers {
  double test_accuracy = 0;
  double test_loss = 0;  // a NaN where it is not finite
  double compression_ratio = 0;
  double push_bits_per_value = 0;
  double pull_bits_per_value = 0;
  double compute_seconds = 0;     // a worker's, a step
  double codec_seconds = 0;       // the same
  double busiest_node_bytes = 0;  // a step
};

// As summary.json and results.json name them.
inline constexpr std::array<std::pair<const char*, double ComparedNumbers::*>, 8> kComparedNumbers{
    {{"test_accuracy", &ComparedNumbers::test_accuracy},
     {"test_loss", &ComparedNumbers::test_loss},
     {"compression_ratio", &ComparedNumbers::compression_ratio},
     {"push_bits_per_value", &ComparedNumbers::push_bits_per_value},
     {"pull_bits_per_value", &ComparedNumbers::pull_bits_per_value},
     {"compute_seconds", &ComparedNumbers::compute_seconds},
     {"codec_seconds", &ComparedNumbers::codec_seconds},
     {"busiest_node_bytes", &ComparedNumbers::busiest_node_bytes}}};

// What a whole run came to.
struct CellResult : ComparedNumbers {
  nlohmann::json final_loss;     // null where it is not finite
  nlohmann::json diverged_step;  // null where the run did not diverge
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
