// The directory that a run leaves behind: config.json, metrics.jsonl, summary.json.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tersewire::apps {

// Every function throws an Error that names the file where something cannot be written.
class RunDirectory {
 public:
  // Makes the directory; throws kFailedPrecondition where it exists and holds something.
  explicit RunDirectory(std::filesystem::path path);
  // Makes runs/MODEL-DATE-TIME, with a number behind it where that is taken.
  static RunDirectory fresh(const std::string& model);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void write_json(const char* name, const nlohmann::json& content) const;
  // Appends a line to metrics.jsonl.
  void add_metrics(const nlohmann::json& line);

 private:
  std::filesystem::path path_;
  std::ofstream metrics_;
};

}  // namespace tersewire::apps
