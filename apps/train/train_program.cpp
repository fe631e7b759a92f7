// `train` and `compare` where libtorch is not loaded: this program becomes tersewire-train, which
// lies beside it and has them.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr const char* kTrainProgram = "tersewire-train";

[[noreturn]] void become_train_program(const CLI::App& command) {
  std::vector<std::string> words{"tersewire", command.get_name()};
  for (const std::string& word : command.remaining()) words.push_back(word);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  std::error_code error;
  const fs::path path = fs::read_symlink(kThisProgram, error).replace_filename(kTrainProgram);
  if (error) fail_file(kThisProgram, "read", error.value());
  ::execv(path.c_str(), arguments.data());
  fail_file(path.string(), "started", errno);
}

void add_command_of_train_program(CLI::App& app, const char* name, const char* summary) {
  CLI::App* command = app.add_subcommand(name, summary);
  // All that follows is for the other program, --help too.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command] { become_train_program(*command); });
}

}  // namespace

void add_train_command(CLI::App& app) { add_command_of_train_program(app, "train", kTrainSummary); }

// The other program knows all commands' options.
void add_config_command(CLI::App& app) {
  add_command_of_train_program(app, "config", kConfigSummary);
}

void add_compare_command(CLI::App& app) {
  add_command_of_train_program(app, "compare", kCompareSummary);
}

}  // namespace tersewire::apps
