// A process that `tersewire compare` starts: a cell, or a measurement in the lab.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tersewire::apps {

// How a child ends of a command that there is not, as in a shell.
inline constexpr int kNoSuchCommand = 127;

// In a process group of its own, so that what a terminal sends reaches it through this class
// alone. When this process dies without a word, it is sent `orphan_signal`. One thread.
class ChildProcess {
 public:
  // Standard output and error go to these files, whose former contents are lost; standard input is
  // empty. Throws an Error where a file cannot be written or no process be made. A command that
  // there is not ends with kNoSuchCommand.
  ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& output,
               const std::filesystem::path& errors, int orphan_signal);
  // Kills what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Once it has ended: its exit status, or 128 + the signal that ended it.
  [[nodiscard]] std::optional<int> exit_status();
  // Asks it to end.
  void terminate() const;
  // The same, and gives it some seconds for it.
  void end();
  // Why it ended, for people: its sentence or last line on standard error, or the signal.
  [[nodiscard]] std::string last_words() const;

 private:
  pid_t process_ = -1;
  std::filesystem::path errors_;
  std::optional<int> status_;
};

}  // namespace tersewire::apps
