// The directory that a run leaves behind: config.json, metrics.jsonl, observations.jsonl,
// summary.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tersewire::apps {

// Makes the directory runs/NAME-DATE-TIME, with a number behind it where that is taken.
std::filesystem::path fresh_directory(const std::string& name);

// The steps of the run in this directory, where it has taken them all and its model is there;
// nothing where it has not, or where there is no run.
std::optional<std::uint64_t> finished_steps(const std::filesystem::path& run);

// Every function throws an Error that names the file where something cannot be written.
class RunDirectory {
 public:
  // Makes the directory; throws kFailedPrecondition where it exists and holds something.
  explicit RunDirectory(std::filesystem::path path);
  // Called once a directory is locked, before anything in it is removed: throws where what this
  // process knows of it is no longer so.
  using Check = std::function<void()>;
  // That of a run which goes on after `step`: what its lines say of later steps is dropped, and
  // what processes that were killed were writing. Throws kNotFound where there is none.
  static RunDirectory resumed(std::filesystem::path path, std::uint64_t step, const Check& check);
  // That of a run which begins again because it had no checkpoint yet: all that it has left is
  // removed, and the files that `tensorboard` holds, where that is the directory itself or in it.
  // Throws kFailedPrecondition where the directory holds anything else.
  static RunDirectory restarted(std::filesystem::path path,
                                const std::optional<std::string>& tensorboard, const Check& check);
  // The same where another process may have begun the run, whose part this one takes: made where
  // there is none, and locked unless another process does so: whether that is of the job, its
  // members tell each other.
  static RunDirectory taken_over(std::filesystem::path path, std::uint64_t step);
  // A fresh_directory().
  static RunDirectory fresh(const std::string& model);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Of a run that was refused before its first step: takes back what has been made of it.
  void forget() const;

  void write_json(const char* name, const nlohmann::json& content) const;
  // Appends a line to metrics.jsonl.
  void add_metrics(const nlohmann::json& line);
  // Appends a line to observations.jsonl.
  void add_observation(const nlohmann::json& line);
  // The last line of metrics that a resumed run's holds; null where there is none.
  [[nodiscard]] const nlohmann::json& last_metrics() const { return last_metrics_; }

 private:
  RunDirectory() = default;
  // Drops what the run has left of steps after `step`.
  void go_back_to(std::uint64_t step);
  // A file of lines, by its name; made where there is none.
  std::ofstream& lines(const char* name);
  void add_line(const char* name, const nlohmann::json& line);
  // Drops the lines of steps after `step`, and what is no line; returns the last that is left.
  nlohmann::json keep_lines(const char* name, std::uint64_t step) const;

  std::filesystem::path path_;
  bool made_ = false;  // by this process
  std::map<std::string, std::ofstream> lines_;
  nlohmann::json last_metrics_;
};

}  // namespace tersewire::apps
