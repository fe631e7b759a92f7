#include "apps/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <span>
#include <system_error>

#include "apps/command.h"
#include "apps/run_files.h"
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
  if (!fs::create_directories(path_, error) && error) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("cannot make the directory {}: {}; choose another --out",
                            path_.string(), error.message()));
  }
  lock_directory(path_);
}

void lock_directory(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_file(path.string(), "read", errno);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("another process is working in {}; wait until it has ended", path.string()));
  }
}

RunDirectory RunDirectory::resumed(fs::path path, std::uint64_t step) {
  RunDirectory directory;
  directory.path_ = std::move(path);
  lock_directory(directory.path_);
  directory.last_metrics_ = directory.keep_lines(kMetricsFile, step);
  directory.keep_lines(kObservationsFile, step);
  // What the run came to when it was interrupted: no longer so.
  std::error_code error;
  fs::remove(directory.path_ / kSummaryFile, error);
  return directory;
}

nlohmann::json RunDirectory::keep_lines(const char* name, std::uint64_t step) const {
  const fs::path path = path_ / name;
  nlohmann::json last;
  std::error_code error;
  if (!fs::exists(path, error)) return last;
  std::string kept;
  std::ifstream lines(path);
  for (std::string text; std::getline(lines, text);) {
    nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    const auto number = line.is_object() ? line.find("step") : line.end();
    // The last line may be cut off.
    if (!line.is_object() || number == line.end() || !number->is_number_unsigned()) continue;
    if (number->get<std::uint64_t>() > step) continue;
    kept += text + "\n";
    last = std::move(line);
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
  return RunDirectory(fresh_directory(model));
}

fs::path fresh_directory(const std::string& name) {
  const std::string stem = fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time({})));
  std::error_code error;
  fs::create_directories("runs", error);
  fs::path path = fs::path("runs") / stem;
  // Another run may take the name at the same moment: only one of them makes the directory.
  for (int i = 2; !error && !fs::create_directory(path, error); ++i) {
    path = fs::path("runs") / fmt::format("{}-{}", stem, i);
  }
  if (error) fail_file(path.string(), "written", error.value());
  return path;
}

}  // namespace tersewire::apps
