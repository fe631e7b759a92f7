#include "apps/cli/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "apps/cli/output.h"

namespace tersewire::apps {
namespace {

constexpr std::uint64_t kPlainLines = 10;
constexpr auto kRedrawEvery = std::chrono::milliseconds(200);
constexpr int kBarCells = 20;

std::string bar(std::uint64_t done, std::uint64_t total) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  const auto cells = static_cast<std::size_t>(share * kBarCells);
  return fmt::format("[{:<{}}]", std::string(cells, '='), kBarCells);
}

// To the terminal's width: a line that wraps could not be redrawn.
std::string clipped(std::string line) {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
      line.size() >= size.ws_col) {
    line.resize(size.ws_col - 1U);
  }
  return line;
}

}  // namespace

ProgressLine::ProgressLine(std::uint64_t total)
    : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

bool ProgressLine::is_due(std::uint64_t done) {
  if (done == total_) return true;
  if (!terminal_) {
    // Not at multiples alone: some may be skipped.
    const std::uint64_t every = std::max<std::uint64_t>(1, total_ / kPlainLines);
    if (done < next_line_ + every) return false;
    next_line_ = done / every * every;
    return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < kRedrawEvery) return false;
  shown_ = now;
  return true;
}

void ProgressLine::show(std::uint64_t done, const std::string& text) {
  if (terminal_) {
    note("\r\x1b[K" + clipped(bar(done, total_) + " " + text));
    line_open_ = true;
  } else {
    note(text + "\n");
  }
}

void ProgressLine::finish() {
  if (line_open_) note("\n");
  line_open_ = false;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace tersewire::apps
