#include "apps/compare/compare_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalled = 128;
// lab/netlab takes up to 5 seconds.
constexpr auto kGrace = std::chrono::seconds(10);
constexpr auto kPollEvery = std::chrono::milliseconds(20);

int opened(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_file(path.string(), "written", errno);
  return descriptor;
}

// In the new process, where nothing but system calls is safe.
[[noreturn]] void become(char* const* command, int output, int errors, pid_t parent,
                         int orphan_signal) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, orphan_signal);
  if (::getppid() != parent) ::_exit(kNoSuchCommand);  // it has died already
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execvp(command[0], command);
  ::_exit(kNoSuchCommand);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const fs::path& output,
                           const fs::path& errors, int orphan_signal)
    : errors_(errors) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int output_file = opened(output);
  const int errors_file = opened(errors);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) become(words.data(), output_file, errors_file, parent, orphan_signal);
  const int error = errno;
  ::close(output_file);
  ::close(errors_file);
  if (process_ < 0) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("cannot start a process for '{}': {}; use fewer --jobs",
                            command.front(), std::generic_category().message(error)));
  }
}

ChildProcess::~ChildProcess() {
  if (process_ < 0 || status_) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

std::optional<int> ChildProcess::exit_status() {
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) {
    status_ = WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return status_;
}

void ChildProcess::terminate() const {
  if (!status_) ::kill(process_, SIGTERM);
}

void ChildProcess::end() {
  terminate();
  const auto limit = std::chrono::steady_clock::now() + kGrace;
  while (!exit_status() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kPollEvery);
  }
}

std::string ChildProcess::last_words() const {
  if (status_ && *status_ > kSignalled) {
    return fmt::format("it was killed by signal {}", *status_ - kSignalled);
  }
  std::ifstream lines(errors_);
  std::string last;
  std::string sentence;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
    // A launcher may have something to add.
    for (const std::string_view program : {"tersewire: ", "netlab: "}) {
      if (line.starts_with(program)) sentence = line.substr(program.size());
    }
  }
  if (!sentence.empty()) return sentence;
  return last.empty() ? fmt::format("it exited with status {}", status_.value_or(0)) : last;
}

}  // namespace tersewire::apps
