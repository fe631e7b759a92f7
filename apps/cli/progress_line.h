// Progress on stderr: a bar that redraws itself on a terminal, else a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tersewire::apps {

// What cannot be written is left out. One thread at a time.
class ProgressLine {
 public:
  //   total  what `done` will come to, in any unit
  explicit ProgressLine(std::uint64_t total);
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Whether it is time for another line; counts as one shown.
  [[nodiscard]] bool is_due(std::uint64_t done);
  // Shows `text`, behind a bar on a terminal.
  void show(std::uint64_t done, const std::string& text);
  // Ends the bar's line.
  void finish();

 private:
  std::uint64_t total_;
  bool terminal_;
  bool line_open_ = false;
  std::uint64_t next_line_ = 0;
  std::chrono::steady_clock::time_point shown_{};
};

// Minutes and seconds, as in 3:07.
std::string clock_text(double seconds);

}  // namespace tersewire::apps
