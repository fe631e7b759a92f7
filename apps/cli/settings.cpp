#include "apps/cli/settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

std::string value_of(const CLI::Option& option) {
  return option.count() > 0 ? CLI::detail::join(option.results(), " ") : option.get_default_str();
}

// 0.01 and 0.010 are.
bool are_the_same(const std::string& a, const std::string& b) {
  double first = 0;
  double second = 0;
  const bool numbers = CLI::detail::lexical_cast(a, first) && CLI::detail::lexical_cast(b, second);
  return a == b || (numbers && first == second);
}

void give(CLI::Option& option, const std::string& value) {
  option.clear();
  option.add_result(value);
  option.run_callback();
}

}  // namespace

Settings settings_of(const CLI::App& command) {
  Settings settings;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    const bool said = option->count() > 0 || !option->get_default_str().empty();
    if (said) settings[option->get_lnames().front()] = value_of(*option);
  }
  return settings;
}

void apply_settings(const Settings& settings, CLI::App& command,
                    const std::set<std::string>& changeable) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || !option->get_configurable()) continue;
    const std::string name = option->get_lnames().front();
    const auto before = settings.find(name);
    if (changeable.contains(name)) continue;
    if (before != settings.end() && are_the_same(before->second, value_of(*option))) continue;
    throw WrongUsage(fmt::format(
        "the run has {}, but --{} '{}' was given; omit it, or begin a new run",
        before == settings.end() ? "no --" + name : fmt::format("--{} '{}'", name, before->second),
        name, value_of(*option)));
  }
  for (const auto& [name, value] : settings) {
    CLI::Option* option = command.get_option_no_throw("--" + name);
    if (option == nullptr || !option->get_configurable()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("the checkpoint has a setting '{}' that this program does not know; "
                              "resume with the one that made it",
                              name));
    }
    if (option->count() == 0) give(*option, value);
  }
}

}  // namespace tersewire::apps
