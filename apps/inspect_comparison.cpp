// What there is of a comparison of runs.
#include <algorithm>
#include <set>
#include <system_error>

#include "apps/inspection.h"
#include "apps/run_record.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlan = "compare.json";
constexpr const char* kResults = "results.json";
constexpr const char* kCells = "cells";

// Null where there is none that can be read.
nlohmann::json object_in(const fs::path& file) {
  try {
    return json_object_if_any(file);
  } catch (const Error&) {
    return {};
  }
}

bool is_whole(const fs::path& run) {
  const nlohmann::json summary = object_in(run / "summary.json");
  return summary.is_object() && summary.value("interrupted", nlohmann::json()) == false;
}

std::size_t whole_runs(const fs::path& cells) {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(cells, error), end; !error && entry != end;
       entry.increment(error)) {
    count += is_whole(entry->path()) ? 1 : 0;
  }
  return count;
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
  if (text_of(cell, "state") != "failed" || path.parent_path() != kCells) return;
  if (!is_whole(comparison / path)) failed.insert(path.filename().string());
}

std::size_t failed_runs(const fs::path& comparison) {
  std::set<std::string> failed;
  const nlohmann::json results = object_in(comparison / kResults);
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
  return fs::is_regular_file(directory / kPlan, error);
}

Inspection inspect_comparison(const fs::path& directory) {
  const Json plan = read_json_object(directory / kPlan);
  const std::size_t designs = length_of(plan, "designs");
  const std::size_t planned = designs * length_of(plan, "steps") * length_of(plan, "seeds");
  const std::size_t done = std::min(planned, whole_runs(directory / kCells));
  const std::size_t failed = std::min(planned - done, failed_runs(directory));
  std::error_code error;
  Json json{{"kind", "comparison"},
            {"designs", designs},
            {"runs", planned},
            {"done", done},
            {"failed", failed},
            {"missing", planned - done - failed},
            {"results", fs::is_regular_file(directory / kResults, error)}};
  std::string text = lines_of(json, "");
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
