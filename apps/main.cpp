// The program `tersewire`: its frame and its exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

#include "apps/command.h"
#include "apps/nearest.h"

namespace tersewire::apps {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

constexpr const char* kExamples = R"(Examples:
  tersewire encode --codec 3lc:s=1.75 gradient.npy gradient.tw
  tersewire decode gradient.tw back.npy
  tersewire inspect gradient.tw
  tersewire COMMAND --help      more of them)";

// One line, whatever a file's name or a library's text brings along.
void complain(std::string sentence) {
  std::ranges::replace_if(
      sentence, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  note(fmt::format("tersewire: {}\n", sentence));
}

// For an option that the command does not have.
std::string suggestion(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& argument : command.remaining()) {
    if (!argument.starts_with("--")) continue;
    const std::string wrong = argument.substr(0, argument.find('='));
    return fmt::format("; did you mean {}?", nearest(wrong, names));
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
#ifdef TERSEWIRE_TRAIN_COMMAND
  add_train_command(app);
  add_compare_command(app);
#endif
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    print(fmt::format("{}\n", version.what()));
    return kDone;
  } catch (const CLI::ParseError& error) {
    complain(usage_sentence(app, error.what()));
    return kWrongUsage;
  }
  if (app.get_subcommands().empty()) {
    complain("say which command; see 'tersewire --help'");
    return kWrongUsage;
  }
  // What a command printed by other means than print().
  print("");
  return kDone;
}

int run(int argc, char** argv) {
  try {
    CLI::App app("Compresses the tensors that distributed training exchanges.", "tersewire");
    app.set_version_flag("--version", "tersewire " TERSEWIRE_VERSION);
    app.footer(kExamples);
    add_commands(app);
    return run(app, argc, argv);
  } catch (const WrongUsage& error) {
    complain(error.what());
    return kWrongUsage;
  } catch (const ReaderGone&) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  } catch (const ToldElsewhere& failure) {
    return failure.wrong_usage() ? kWrongUsage : kFailed;
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory; use a smaller array or a machine with more");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return kFailed;
}

}  // namespace
}  // namespace tersewire::apps

int main(int argc, char** argv) {
  // A closed standard stream's number would go to the next file that is opened, and what is meant
  // for the stream would be written into that file.
  for (int descriptor = 0; descriptor <= STDERR_FILENO;) {
    descriptor = ::open("/dev/null", O_RDWR);
    if (descriptor < 0) return tersewire::apps::kFailed;
    if (descriptor > STDERR_FILENO) ::close(descriptor);
  }
  // Writing to a reader that has gone is to fail, not to end the program with work unsaved: that
  // ends it last of all (ReaderGone).
  std::signal(SIGPIPE, SIG_IGN);
  // Past a limit on file sizes write() is to fail as on a full disk, not to end the program.
  std::signal(SIGXFSZ, SIG_IGN);
  return tersewire::apps::run(argc, argv);
}
