#include "apps/compare/compare_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/progress_line.h"
#include "apps/compare/compare_child.h"
#include "apps/run/numbers/json_object.h"
#include "apps/run/run_files.h"
#include "tersewire/counted.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kLookAtCellEvery = std::chrono::milliseconds(50);
// Whatever has become of its file since it was started: all cells are by the same one.
constexpr const char* kThisProgram = "/proc/self/exe";
// More than one line of metrics.jsonl takes.
constexpr std::streamoff kTailBytes = 4096;

// Of a run that came to its end; nothing where there is no such file.
std::optional<CellResult> result_in(const fs::path& directory) {
  const nlohmann::json summary = json_object_if_any(directory / kSummaryFile);
  try {
    if (summary.at("interrupted").get<bool>()) return std::nullopt;
    CellResult result;
    if (const nlohmann::json& share = summary.at("test_accuracy");
        share.is_number() && !(share >= 0 && share <= 1)) {
      throw Error(
          ErrorCode::kDataLoss,
          fmt::format(
              "{}: a test accuracy of {} is not a number from 0 to 1; remove {} to train it again",
              (directory / kSummaryFile).string(), share.dump(), directory.string()));
    }
    for (const auto& [key, member] : kSummaryNumbers) {
      const nlohmann::json& value = summary.at(key);
      // What is not finite is null in JSON.
      result.*member = value.is_null() ? std::nan("") : value.get<double>();
    }
    result.final_loss = summary.at("final_loss");
    result.diverged_step = summary.at("diverged_step");
    result.diverged = diverged(summary);
    result.parameters_checksum = summary.at("parameters_checksum");
    return result;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// The last step that a run has written of; 0 where there is none yet.
std::uint64_t step_of(const fs::path& directory) {
  std::ifstream file(directory / kMetricsFile, std::ios::binary);
  file.seekg(0, std::ios::end);
  if (!file) return 0;
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kTailBytes));
  std::uint64_t step = 0;
  for (std::string line; std::getline(file, line);) {
    const auto metrics = nlohmann::json::parse(line, nullptr, false);
    if (!metrics.is_object() || !metrics.contains("step")) continue;  // cut off at either end
    if (metrics["step"].is_number_unsigned()) step = metrics["step"];
  }
  return step;
}

class CellRunner {
 public:
  CellRunner(const ComparePlan& plan, fs::path out)
      : plan_(plan), out_(std::move(out)), outcomes_(plan.cells.size()), progress_(all_steps()) {
    for (std::size_t i = 0; i < plan.cells.size(); ++i) {
      outcomes_[i].result = result_in(directory(i));
      if (!outcomes_[i].result) {
        waiting_.push_back(i);
        continue;
      }
      ++ended_;
      kept_steps_ += plan.cells[i].steps;
    }
    ended_steps_ = kept_steps_;
    std::ranges::reverse(waiting_);  // taken from the back
  }

  std::vector<CellOutcome> run(std::size_t jobs) {
    if (ended_ > 0) {
      note(fmt::format("{} of {} runs are done already\n", ended_, plan_.cells.size()));
    }
    while (!interrupted && !(waiting_.empty() && running_.empty())) {
      while (running_.size() < jobs && !waiting_.empty()) start_next();
      std::this_thread::sleep_for(kLookAtCellEvery);
      reap();
      show();
    }
    progress_.finish();
    end_all();
    return std::move(outcomes_);
  }

 private:
  struct Running {
    std::size_t cell;
    std::unique_ptr<ChildProcess> process;
  };

  [[nodiscard]] std::uint64_t all_steps() const {
    std::uint64_t steps = 0;
    for (const Cell& cell : plan_.cells) steps += cell.steps;
    return steps;
  }

  [[nodiscard]] fs::path directory(std::size_t i) const {
    return out_ / cell_directory(plan_.cells[i]);
  }

  void start_next() {
    const std::size_t i = waiting_.back();
    waiting_.pop_back();
    const Cell& cell = plan_.cells[i];
    // A run that was cut off has no checkpoint to go on from.
    std::error_code error;
    fs::remove_all(directory(i), error);
    if (error) fail_file(directory(i).string(), "removed", error.value());
    std::vector<std::string> command = cell.arguments;
    command.insert(command.begin(), kThisProgram);
    command.insert(command.end(), {"--out", directory(i).string()});
    running_.push_back(
        {i, std::make_unique<ChildProcess>(command, out_ / "logs" / (cell.name + ".out"),
                                           out_ / "logs" / (cell.name + ".err"), SIGKILL)});
  }

  void reap() {
    std::erase_if(running_, [&](Running& running) {
      if (!running.process->exit_status()) return false;
      finish(running);
      return true;
    });
  }

  void finish(const Running& running) {
    CellOutcome& outcome = outcomes_[running.cell];
    const Cell& cell = plan_.cells[running.cell];
    // A run that its loss has ended has a summary all the same.
    outcome.result = result_in(directory(running.cell));
    if (!outcome.result) {
      outcome.failure = running.process->exit_status() == 0 ? "it was interrupted"
                                                            : running.process->last_words();
      progress_.finish();
      complain(fmt::format("{} with {} and seed {} failed: {}\n", plan_.designs[cell.design].name,
                           counted(cell.steps, "step"), cell.seed, outcome.failure));
    }
    ++ended_;
    ended_steps_ += cell.steps;
  }

  void show() {
    std::uint64_t done = ended_steps_;
    std::string now;
    for (const Running& running : running_) {
      const Cell& cell = plan_.cells[running.cell];
      const std::uint64_t step = step_of(directory(running.cell));
      done += step;
      now += fmt::format("{}{}, seed {}, step {}/{}", now.empty() ? ": " : "; ",
                         plan_.designs[cell.design].name, cell.seed, step, cell.steps);
    }
    const auto state = std::pair(done, ended_);
    if (state == shown_ || !progress_.is_due(done)) return;
    shown_ = state;
    progress_.show(done, fmt::format("{}/{} runs, {} left{}", ended_, plan_.cells.size(),
                                     time_left(done), now));
  }

  // By the steps taken since this program began.
  [[nodiscard]] std::string time_left(std::uint64_t done) const {
    if (done <= kept_steps_) return "?";
    const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    return clock_text(seconds / static_cast<double>(done - kept_steps_) *
                      static_cast<double>(all_steps() - done));
  }

  void end_all() {
    for (const Running& running : running_) running.process->terminate();
    for (const Running& running : running_) running.process->end();
    running_.clear();
  }

  const ComparePlan& plan_;
  fs::path out_;
  std::vector<CellOutcome> outcomes_;
  std::vector<std::size_t> waiting_;
  std::vector<Running> running_;
  std::size_t ended_ = 0;
  std::uint64_t kept_steps_ = 0;
  std::uint64_t ended_steps_ = 0;
  std::pair<std::uint64_t, std::size_t> shown_;
  Clock::time_point began_ = Clock::now();
  ProgressLine progress_;
};

}  // namespace

fs::path cell_directory(const Cell& cell) { return fs::path(kCellsFolder) / cell.name; }

std::vector<CellOutcome> run_cells(const ComparePlan& plan, const fs::path& out, std::size_t jobs) {
  return CellRunner(plan, out).run(jobs);
}

}  // namespace tersewire::apps
