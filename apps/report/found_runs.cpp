#include "apps/report/found_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/run/numbers/json_object.h"
#include "apps/run/run_files.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Finder {
 public:
  void read(const std::string& name) {
    const fs::path directory = fs::path(name);
    std::error_code error;
    if (!fs::is_directory(directory, error)) {
      if (error == std::errc::permission_denied) fail_file(name, "read", error.value());
      throw Error(ErrorCode::kNotFound,
                  name +
                      " is not a directory; name one that 'tersewire train --out' or 'tersewire "
                      "compare' made");
    }
    check_may_enter(directory);
    if (is_run(directory)) {
      add({}, directory);
    } else if (fs::exists(directory / kResultsFile, error) ||
               fs::is_directory(directory / kCellsFolder, error)) {
      read_comparison(directory);
    } else {
      throw Error(ErrorCode::kNotFound,
                  name +
                      " holds neither a run nor a comparison; name a directory that 'tersewire "
                      "train --out' or 'tersewire compare' made");
    }
  }

  FoundRuns found() && { return std::move(found_); }

 private:
  void add(const Origin& origin, const fs::path& directory) {
    std::error_code error;
    const fs::path canonical = fs::weakly_canonical(directory, error);
    // Named twice it would count twice.
    if (!seen_.insert(canonical).second) return;
    found_.runs.push_back({origin, RunRecord(directory, found_.notes)});
  }

  // Of a comparison what cannot be read is left out, so that the rest is seen.
  void try_add(const Origin& origin, const fs::path& directory) {
    try {
      add(origin, directory);
    } catch (const Error& error) {
      found_.notes.push_back(fmt::format("Left out: {}.", error.what()));
    }
  }

  void read_comparison(const fs::path& directory);
  void read_results(const fs::path& directory, const Json& results);
  void read_lab(const Origin& origin, const Json& design);
  void read_cell(const Origin& origin, const Json& cell);
  void scan_cells(const fs::path& directory);
  void read_rates(const Json& results);

  std::set<fs::path> seen_;
  FoundRuns found_;
};

void Finder::read_comparison(const fs::path& directory) {
  const Json results = json_object_if_any(directory / kResultsFile);
  const std::size_t before = found_.runs.size();
  if (results.is_object()) read_results(directory, results);
  if (found_.runs.size() == before) scan_cells(directory);
  if (found_.runs.size() == before) {
    throw Error(ErrorCode::kNotFound, directory.string() +
                                          " is a comparison without a readable run; run "
                                          "'tersewire compare' first");
  }
}

void Finder::read_results(const fs::path& directory, const Json& results) {
  if (found_.baseline.empty()) found_.baseline = text_of(results, "baseline");
  read_rates(results);
  const auto designs = results.find("designs");
  if (designs == results.end() || !designs->is_array()) return;
  for (const Json& design : *designs) {
    const std::string name = text_of(design, "name");
    if (name.empty() || !design.contains("cells") || !design["cells"].is_array()) continue;
    const Origin origin{directory, name};
    for (const Json& cell : design["cells"]) read_cell(origin, cell);
    read_lab(origin, design);
  }
}

void Finder::read_lab(const Origin& origin, const Json& design) {
  const auto rates = design.find("rates");
  if (rates == design.end() || !rates->is_array()) return;
  for (const Json& rate : *rates) {
    const double seconds = number_of(rate, "step_seconds");
    if (text_of(rate, "kind") != "measured" || !(seconds > 0)) continue;
    found_.lab[origin][number_of(rate, "bits_per_second")] = seconds;
  }
}

void Finder::read_cell(const Origin& origin, const Json& cell) {
  const fs::path path = text_of(cell, "dir");
  // A comparison's runs lie below it.
  if (path.empty() || path.is_absolute() || std::ranges::count(path, fs::path("..")) > 0) return;
  if (is_run(origin.comparison / path)) {
    try_add(origin, origin.comparison / path);
  } else {
    ++found_.missing_cells;
  }
}

// Without a record of the whole: what lies there.
void Finder::scan_cells(const fs::path& directory) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory / kCellsFolder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(error) && is_run(entry->path())) runs.push_back(entry->path());
  }
  std::ranges::sort(runs);
  for (const fs::path& run : runs) try_add({}, run);
}

void Finder::read_rates(const Json& results) {
  const auto rates = results.find("rates");
  if (rates == results.end() || !rates->is_array()) return;
  for (const Json& json : *rates) {
    const double bits = number_of(json, "bits_per_second");
    const bool known = std::ranges::count(found_.rates, bits) > 0;
    if (bits > 0 && !known) found_.rates.push_back(bits);
  }
}

}  // namespace

FoundRuns find_runs(const std::vector<std::string>& directories) {
  Finder finder;
  for (const std::string& directory : directories) finder.read(directory);
  return std::move(finder).found();
}

}  // namespace tersewire::apps
