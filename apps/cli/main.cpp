// The program `tersewire`: its frame and its exit codes.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/nearest.h"
#include "apps/cli/output.h"
#include "apps/cli/plain_numbers.h"

namespace tersewire::apps {
namespace {

constexpr int kDone = 0;
constexpr int kWrongUsage = 2;

constexpr const char* kNoMemory =
    "there is not enough memory; use a smaller array or a machine with more";

constexpr const char* kProgramExamples = R"(Examples:
  tersewire encode --codec 3lc:s=1.75 gradient.npy gradient.tw
  tersewire decode gradient.tw back.npy
  tersewire inspect gradient.tw
  tersewire COMMAND --help      more of them)";

// For an unknown option or command.
std::string suggestion(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* inner : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(inner->get_name());
  }
  for (const std::string& argument : command.remaining()) {
    const auto name = nearest(argument.substr(0, argument.find('=')), names);
    if (name) return fmt::format("; did you mean {}?", *name);
  }
  return "";
}

std::string usage_sentence(const CLI::App& app, std::string what) {
  while (!what.empty() && (what.back() == '.' || what.back() == '\n')) what.pop_back();
  std::string name = "tersewire";
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return fmt::format("{}{}; see '{} --help'", what, suggestion(*command), name);
}

void add_commands(CLI::App& app) {
  add_encode_command(app);
  add_decode_command(app);
  add_inspect_command(app);
  add_codecs_command(app);
  add_data_command(app);
  add_bench_command(app);
  add_report_command(app);
  add_nic_command(app);
  add_hub_command(app);
  add_status_command(app);
  add_certs_command(app);
  add_predict_command(app);
  add_probe_command(app);
  add_config_command(app);
#ifdef TERSEWIRE_TRAIN_COMMAND
  add_train_command(app);
  add_compare_command(app);
#endif
}

// To every command that does something.
void add_quiet(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    add_quiet(*command);
    if (command->get_prefix_command() || command->get_require_subcommand_min() > 0) continue;
    command->add_flag_callback("-q,--quiet", be_quiet, "Print only failures and the result")
        ->configurable(false);
  }
}

// What follows the program's name, in the order that CLI11 takes: from the last. As most programs
// have it, too: help, version, and help for nothing.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty()) words = {"--help"};
  if (words.front() == "version") words.front() = "--version";
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);
  return words;
}

int run(CLI::App& app, std::vector<std::string> words) {
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    if (!app.remaining().empty()) {
      say_failure(usage_sentence(app, "unknown command '" + app.remaining().front() + "'"));
      return kWrongUsage;
    }
    print(app.help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    print(fmt::format("{}\n", version.what()));
    return kDone;
  } catch (const CLI::ParseError& error) {
    say_failure(usage_sentence(app, error.what()));
    return kWrongUsage;
  }
  if (app.get_subcommands().empty()) {
    say_failure("give a command; see 'tersewire --help'");
    return kWrongUsage;
  }
  // What a command printed by other means than print().
  print("");
  return kDone;
}

int run(int argc, char** argv) {
  try {
    CLI::App app("Compresses the tensors that distributed training exchanges.", "tersewire");
    app.set_version_flag("-V,--version", "tersewire " TERSEWIRE_VERSION);
    app.footer(kProgramExamples);
    add_commands(app);
    take_plain_numbers(app);
    add_quiet(app);
    if (quiet_by_default()) be_quiet();
    return run(app, words_of(argc, argv));
  } catch (const WrongUsage& error) {
    say_failure(error.what());
    return kWrongUsage;
  } catch (const ReaderGone&) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  } catch (const ToldElsewhere&) {
    return kDone;
  } catch (const std::bad_alloc&) {
    say_failure(kNoMemory);
  } catch (const std::length_error&) {
    say_failure(kNoMemory);
  } catch (const std::system_error& error) {
    const bool threads = error.code() == std::errc::resource_unavailable_try_again;
    say_failure(threads ? "the system cannot start another thread; use fewer workers or threads"
                        : error.what());
  } catch (const std::exception& error) {
    say_failure(error.what());
  }
  return failure_code();
}

}  // namespace
}  // namespace tersewire::apps

int main(int argc, char** argv) {
  // A closed standard stream's number would go to the next file that is opened, and what is meant
  // for the stream would be written into that file.
  for (int descriptor = 0; descriptor <= STDERR_FILENO;) {
    descriptor = ::open("/dev/null", O_RDWR);
    if (descriptor < 0) return EXIT_FAILURE;
    if (descriptor > STDERR_FILENO) ::close(descriptor);
  }
  // Writing to a reader that has gone is to fail, not to end the program with work unsaved: that
  // ends it last of all (ReaderGone).
  std::signal(SIGPIPE, SIG_IGN);
  // Past a limit on file sizes write() is to fail as on a full disk, not to end the program.
  std::signal(SIGXFSZ, SIG_IGN);
  return tersewire::apps::run(argc, argv);
}
