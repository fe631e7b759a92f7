#include "apps/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_write(const fs::path& file) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("cannot write {}: {}; make room or choose another --out", file.string(),
                          std::generic_category().message(errno)));
}

}  // namespace

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
  metrics_.open(path_ / "metrics.jsonl");
  if (!metrics_) fail_write(path_ / "metrics.jsonl");
}

void RunDirectory::write_json(const char* name, const nlohmann::json& content) const {
  std::ofstream file(path_ / name);
  file << content.dump(2) << '\n';
  file.close();
  if (!file) fail_write(path_ / name);
}

void RunDirectory::add_metrics(const nlohmann::json& line) {
  metrics_ << line.dump() << '\n' << std::flush;
  if (!metrics_) fail_write(path_ / "metrics.jsonl");
}

fs::path RunDirectory::fresh_path(const std::string& model) {
  const std::string name = fmt::format("{}-{:%Y%m%d-%H%M%S}", model, fmt::localtime(std::time({})));
  fs::path path = fs::path("runs") / name;
  for (int i = 2; fs::exists(path); ++i) path = fs::path("runs") / fmt::format("{}-{}", name, i);
  return path;
}

}  // namespace tersewire::apps
