#include "apps/settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/command.h"

namespace tersewire::apps {
namespace {

std::string value_of(const CLI::Option& option) {
  return option.count() > 0 ? CLI::detail::join(option.results(), " ") : option.get_default_str();
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
    const std::string value = value_of(*option);
    if (!value.empty()) settings[option->get_lnames().front()] = value;
  }
  return settings;
}

void apply_settings(const Settings& settings, CLI::App& command,
                    const std::set<std::string>& changeable) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || !option->get_configurable()) continue;
    const std::string name = option->get_lnames().front();
    const auto before = settings.find(name);
    const std::string value = before == settings.end() ? "" : before->second;
    if (changeable.contains(name) || value == value_of(*option)) continue;
    throw WrongUsage(
        fmt::format("the run has {}, and --{} {} was given; leave it out, or begin a new run",
                    before == settings.end() ? "no --" + name : fmt::format("--{} {}", name, value),
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
