#include "apps/run/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <span>
#include <system_error>

#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/files/new_file.h"
#include "apps/files/on_disk.h"
#include "apps/files/read_file.h"
#include "apps/run/directory_lock.h"
#include "apps/run/numbers/object_lines.h"
#include "apps/run/run_files.h"
#include "tersewire/error.h"

namespace tersewire::apps {

namespace fs = std::filesystem;

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  if (fs::exists(path_, error) && !(fs::is_directory(path_, error) && fs::is_empty(path_, error))) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} exists and is not an empty directory; choose another --out",
                            path_.string()));
  }
  made_ = make_directories(path_, error);
  if (error) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("cannot make the directory {}: {}; choose another --out",
                            path_.string(), error.message()));
  }
  lock_directory(path_);
}

namespace {

// A pipe in its place would be waited for until somebody writes into it.
void check_is_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_regular_file(path, error)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              path.string() + " is not a regular file, as a run would have left; remove it");
}

std::optional<nlohmann::json> json_in(const fs::path& path) {
  check_is_file(path);
  const auto bytes = read_file_if_exists(path.string());
  return bytes ? std::optional(parse_json(*bytes)) : std::nullopt;
}

std::string name_of(const fs::directory_entry& entry) { return entry.path().filename().string(); }

bool is_a_runs(const fs::directory_entry& entry) { return is_of_a_run(name_of(entry)); }

bool is_of_tensorboard(const fs::directory_entry& entry) {
  return name_of(entry).starts_with(kTensorboardPrefix);
}

template <typename Predicate>
bool holds_some(const fs::path& directory, const Predicate& predicate) {
  return std::ranges::any_of(entries_in(directory), predicate);
}

// Those of processes that were killed: whoever calls this holds the run's lock.
void remove_temporary_files(const fs::path& run) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(run, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary_file(name_of(*entry))) continue;
    fs::remove(entry->path(), error);
    if (error) fail_file(entry->path().string(), "removed", error.value());
  }
}

}  // namespace

std::optional<std::uint64_t> finished_steps(const fs::path& run) {
  const auto config = json_in(run / kConfigFile);
  const auto summary = json_in(run / kSummaryFile);
  std::error_code error;
  if (!config || !summary || !fs::exists(run / kModelFile, error)) return std::nullopt;
  if (!config->is_object() || !summary->is_object()) return std::nullopt;
  const auto steps = summary->find("steps");
  const auto wanted = config->find("steps");
  if (steps == summary->end() || wanted == config->end() || *steps != *wanted) return std::nullopt;
  return steps->is_number_unsigned() ? std::optional(steps->get<std::uint64_t>()) : std::nullopt;
}

void RunDirectory::forget() const {
  std::error_code error;
  fs::remove(path_ / kConfigFile, error);
  if (made_) fs::remove(path_, error);
}

RunDirectory RunDirectory::restarted(fs::path path, const std::optional<std::string>& tensorboard,
                                     const Check& check) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_empty(path, error)) return RunDirectory(path);
  RunDirectory directory;
  directory.path_ = std::move(path);
  lock_directory(directory.path_);
  check();
  const auto is_tensorboards = [&](const fs::path& place) {
    return tensorboard && fs::equivalent(place, *tensorboard, error);
  };
  const bool is_run = holds_some(directory.path_, is_a_runs);
  const auto is_of_this_run = [&](const fs::directory_entry& entry) {
    if (is_a_runs(entry) || is_temporary_file(name_of(entry))) return true;
    if (!is_run) return false;
    if (is_of_tensorboard(entry)) return is_tensorboards(directory.path_);
    return entry.is_directory(error) && is_tensorboards(entry.path()) &&
           !holds_some(entry.path(), std::not_fn(is_of_tensorboard));
  };
  for (const auto& entry : entries_in(directory.path_)) {
    if (is_of_this_run(entry)) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds {}, which does not belong to the run; choose another --out",
                            directory.path_.string(), entry.path().filename().string()));
  }
  for (const auto& entry : entries_in(directory.path_)) {
    fs::remove_all(entry.path(), error);
    if (error) fail_file(entry.path().string(), "removed", error.value());
  }
  return directory;
}

RunDirectory RunDirectory::resumed(fs::path path, std::uint64_t step, const Check& check) {
  RunDirectory directory;
  directory.path_ = std::move(path);
  lock_directory(directory.path_);
  check();
  remove_temporary_files(directory.path_);
  directory.go_back_to(step);
  return directory;
}

RunDirectory RunDirectory::taken_over(fs::path path, std::uint64_t step) {
  RunDirectory directory;
  directory.path_ = std::move(path);
  std::error_code error;
  make_directories(directory.path_, error);
  if (error) fail_file(directory.path_.string(), "made", error.value());
  lock_directory_if_free(directory.path_);
  directory.go_back_to(step);
  return directory;
}

void RunDirectory::go_back_to(std::uint64_t step) {
  last_metrics_ = keep_lines(kMetricsFile, step);
  keep_lines(kObservationsFile, step);
  // What the run came to when it was interrupted: no longer so.
  std::error_code error;
  fs::remove(path_ / kSummaryFile, error);
}

nlohmann::json RunDirectory::keep_lines(const char* name, std::uint64_t step) const {
  const fs::path path = path_ / name;
  check_is_file(path);
  nlohmann::json last;
  std::error_code error;
  if (!fs::exists(path, error)) return last;
  std::string kept;
  ObjectLines lines(path);
  for (auto line = lines.next(); line && lines.step() <= step; line = lines.next()) {
    kept += lines.text() + "\n";
    last = std::move(*line);
  }
  write_new_file(path.string(), std::as_bytes(std::span(kept)));
  return last;
}

std::ofstream& RunDirectory::lines(const char* name) {
  const auto [file, is_new] = lines_.try_emplace(name);
  if (is_new) file->second.open(path_ / name, std::ios::app);
  if (!file->second) fail_file((path_ / name).string(), "written", errno);
  return file->second;
}

void RunDirectory::add_line(const char* name, const nlohmann::json& line) {
  lines(name) << json_text(line, -1) << '\n' << std::flush;
  lines(name);
}

void RunDirectory::write_json(const char* name, const nlohmann::json& content) const {
  const std::string text = json_text(content) + "\n";
  write_new_file((path_ / name).string(), std::as_bytes(std::span(text)));
}

void RunDirectory::add_metrics(const nlohmann::json& line) { add_line(kMetricsFile, line); }

void RunDirectory::add_observation(const nlohmann::json& line) {
  add_line(kObservationsFile, line);
}

RunDirectory RunDirectory::fresh(const std::string& model) {
  RunDirectory directory(fresh_directory(model));
  directory.made_ = true;
  return directory;
}

fs::path fresh_directory(const std::string& name) {
  const std::time_t now = std::time({});
  std::tm local{};
  ::localtime_r(&now, &local);
  const std::string stem = fmt::format("{}-{:%Y%m%d-%H%M%S}", name, local);
  std::error_code error;
  fs::path path = fs::path("runs") / stem;
  // Another run may take the name at the same moment: only one of them makes the directory.
  for (int i = 2; !error && !make_directories(path, error); ++i) {
    path = fs::path("runs") / fmt::format("{}-{}", stem, i);
  }
  if (error) fail_file(path.string(), "written", error.value());
  return path;
}

}  // namespace tersewire::apps
