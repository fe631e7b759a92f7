// What there is of a comparison of runs.
#include <algorithm>
#include <set>
#include <system_error>

#include "apps/files/read_file.h"
#include "apps/inspect/inspection.h"
#include "apps/run/numbers/json_object.h"
#include "apps/run/run_files.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

// Null where there is none that can be read.
nlohmann::json object_in(const fs::path& file) {
  try {
    return json_object_if_any(file);
  } catch (const Error&) {
    return {};
  }
}

bool is_whole(const fs::path& run) {
  const nlohmann::json summary = object_in(run / kSummaryFile);
  return summary.is_object() && summary.value("interrupted", nlohmann::json()) == false;
}

std::size_t whole_runs(const fs::path& cells) {
  std::error_code error;
  return static_cast<std::size_t>(std::ranges::count_if(entries_in(cells, error), is_whole));
}

template <typename Object>
std::size_t length_of(const Object& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? found->size() : 0;
}

// A run that results.json says failed may be whole by now, and its name lead anywhere.
void add_failed(const fs::path& comparison, const nlohmann::json& cell,
                std::set<std::string>& failed) {
  const fs::path path = text_of(cell, "dir");
  if (text_of(cell, "state") != "failed" || path.parent_path() != kCellsFolder) return;
  if (!is_whole(comparison / path)) failed.insert(path.filename().string());
}

std::size_t failed_runs(const fs::path& comparison) {
  std::set<std::string> failed;
  const nlohmann::json results = object_in(comparison / kResultsFile);
  if (length_of(results, "designs") == 0) return 0;
  for (const nlohmann::json& design : results["designs"]) {
    if (!design.is_object() || length_of(design, "cells") == 0) continue;
    for (const nlohmann::json& cell : design["cells"]) add_failed(comparison, cell, failed);
  }
  return failed.size();
}

}  // namespace

bool looks_like_comparison(const fs::path& directory) {
  std::error_code error;
  return fs::is_regular_file(directory / kPlanFile, error);
}

Inspection inspect_comparison(const fs::path& directory) {
  const Json plan = read_json_object(directory / kPlanFile);
  const std::size_t designs = length_of(plan, "designs");
  const std::size_t planned = designs * length_of(plan, "steps") * length_of(plan, "seeds");
  const std::size_t done = std::min(planned, whole_runs(directory / kCellsFolder));
  const std::size_t failed = std::min(planned - done, failed_runs(directory));
  std::error_code error;
  Json json{{"kind", "comparison"},
            {"designs", designs},
            {"runs", planned},
            {"done", done},
            {"failed", failed},
            {"missing", planned - done - failed},
            {"results", fs::is_regular_file(directory / kResultsFile, error)}};
  std::string text = lines_of(json, "");
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
