// The lines of metrics.jsonl and observations.jsonl, which come from anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tersewire::apps {

// One thread.
class ObjectLines {
 public:
  // No lines where there is no such file. Throws an Error where it cannot be read or is no regular
  // file.
  explicit ObjectLines(const std::filesystem::path& file);

  // The next line that is an object with a step beyond the last one's; nothing after the last. What
  // is none is counted and left out. Throws kDataLoss where a line is longer than any of ours.
  std::optional<nlohmann::json> next();

  // Of what next() has returned: the step, 0 before the first, and the text as it stands there.
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] const std::string& text() const { return text_; }

  // How many were left out, so far.
  [[nodiscard]] std::size_t damaged() const { return damaged_; }
  // The same without a last line that is cut off, as its run was.
  [[nodiscard]] std::size_t damaged_within() const {
    return damaged_ - (damaged_ > 0 && torn_ ? 1 : 0);
  }

 private:
  bool read_line();

  std::string name_;
  std::ifstream stream_;
  std::string text_;
  std::uint64_t step_ = 0;
  std::size_t damaged_ = 0;
  bool torn_ = false;
};

}  // namespace tersewire::apps
