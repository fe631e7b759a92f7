#include "apps/train/recipe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <sstream>
#include <string_view>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/nearest.h"
#include "apps/cli/small_text.h"

namespace tersewire::apps {
namespace {

struct Setting {
  std::size_t line;  // from 1
  std::string key;
  std::string value;
};

[[noreturn]] void refuse(const Recipe& recipe, std::size_t line, std::string_view what) {
  throw WrongUsage(fmt::format("recipe {}, line {}: {}", recipe.name, line, what));
}

Recipe read_recipe(const std::string& path) {
  auto text = small_text_if_exists(path);
  if (!text) fail_file(path, "read", ENOENT);
  return {.name = path, .text = std::move(*text)};
}

std::vector<Setting> settings_in(const Recipe& recipe) {
  std::vector<Setting> settings;
  std::istringstream lines(recipe.text);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    CLI::detail::trim(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) {
      refuse(recipe, number, fmt::format("'{}' is not a setting; write KEY = VALUE", line));
    }
    settings.push_back({.line = number,
                        .key = CLI::detail::trim_copy(line.substr(0, equals)),
                        .value = CLI::detail::trim_copy(line.substr(equals + 1))});
  }
  return settings;
}

std::string key_of(const CLI::Option& option) { return option.get_lnames().front(); }

CLI::Option& option_of(const Recipe& recipe, const Setting& setting, CLI::App& command) {
  const std::vector<std::string> keys = setting_names(command);
  if (std::ranges::find(keys, setting.key) == keys.end()) {
    const std::vector<std::string> others = setting_names(command, false);
    if (std::ranges::find(others, setting.key) != others.end()) {
      refuse(
          recipe, setting.line,
          fmt::format("'{0}' is given on the command line, as --{0}; remove it here", setting.key));
    }
    refuse(recipe, setting.line,
           fmt::format("unknown setting '{}'{}", setting.key,
                       did_you_mean(setting.key, keys, "'tersewire train --help' lists them")));
  }
  return *command.get_option("--" + setting.key);
}

// Settings beside each other that cannot both hold.
void check_against(const std::set<const CLI::Option*>& earlier, const CLI::Option& option,
                   const Recipe& recipe, std::size_t line) {
  if (earlier.contains(&option)) {
    refuse(recipe, line, fmt::format("'{}' is given twice; keep one", key_of(option)));
  }
  for (const CLI::Option* other : option.get_excludes()) {
    if (earlier.contains(other)) {
      refuse(recipe, line,
             fmt::format("'{}' and '{}' exclude each other; keep one", key_of(*other),
                         key_of(option)));
    }
  }
}

void give_value(CLI::Option& option, const Recipe& recipe, const Setting& setting) {
  const bool is_flag = option.get_expected_min() == 0;
  if (is_flag && setting.value != "true" && setting.value != "false") {
    refuse(recipe, setting.line,
           fmt::format("{} is '{}'; write true or false", setting.key, setting.value));
  }
  try {
    option.add_result(setting.value);
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    refuse(recipe, setting.line, error.what());
  }
}

// What the command line has already said, or leaves no room for.
std::set<const CLI::Option*> taken_options(const CLI::App& command) {
  std::set<const CLI::Option*> taken;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    taken.insert(option);
    for (const CLI::Option* other : option->get_excludes()) taken.insert(other);
  }
  return taken;
}

std::string first_line(const std::string& text) {
  const std::size_t begin = text.find_first_not_of("#; ");
  return text.substr(begin, text.find('\n') - begin);
}

}  // namespace

std::string recipe_list() {
  std::string list;
  for (const Recipe& recipe : built_in_recipes()) {
    list += fmt::format("{:<20}{}\n", recipe.name, first_line(recipe.text));
  }
  return list;
}

Recipe find_recipe(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".ini")) return read_recipe(name);
  std::vector<std::string> names;
  for (const Recipe& recipe : built_in_recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw WrongUsage(fmt::format(
      "unknown recipe '{}'{}; 'tersewire train --list-recipes' shows them, and a file of your "
      "own is named with a slash or .ini",
      name, did_you_mean(name, names)));
}

std::vector<std::string> setting_names(const CLI::App& command, bool may_have) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_configurable() != may_have) continue;
    const auto& names = option->get_lnames();
    keys.insert(keys.end(), names.begin(), names.end());
  }
  return keys;
}

void apply_recipe(const Recipe& recipe, CLI::App& command,
                  const std::set<const CLI::Option*>& settled) {
  std::set<const CLI::Option*> taken = taken_options(command);
  taken.insert(settled.begin(), settled.end());
  std::set<const CLI::Option*> seen;
  for (const Setting& setting : settings_in(recipe)) {
    CLI::Option& option = option_of(recipe, setting, command);
    check_against(seen, option, recipe, setting.line);
    seen.insert(&option);
    if (!taken.contains(&option)) give_value(option, recipe, setting);
  }
}

}  // namespace tersewire::apps
