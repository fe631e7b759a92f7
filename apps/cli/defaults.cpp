#include "apps/cli/defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "apps/cli/failures.h"
#include "apps/cli/nearest.h"
#include "apps/cli/small_text.h"
#include "tersewire/codec.h"
#include "tersewire/transports.h"
#include "trainer/chooser/codec_chooser.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileVariable = "TERSEWIRE_CONFIG";
constexpr const char* kQuiet = "quiet";

struct Defaultable {
  const char* option;
  std::vector<std::string_view> commands;  // none: every one
  bool computes = false;                   // another value may make no sense beside other options
};

// What a user may have a default for: of what a run computes the codec alone.
const std::vector<Defaultable>& defaultables() {
  static const std::vector<Defaultable> all{
      {kQuiet, {}},
      {"verbose", {"encode", "decode"}},
      {"codec", {"encode", "train"}, true},
      {"threads", {"encode", "decode", "train"}},
      {"transport", {"train"}, true},
      {"deadline", {"train"}},
      {"progress-limit", {"train"}},
      {"checkpoint-steps", {"train"}, true},
  };
  return all;
}

struct Default {
  std::string value;
  std::string source;
};

const char* variable(const char* name) { return std::getenv(name); }

std::string variable_of(std::string_view option) {
  std::string name = "TERSEWIRE_";
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

// Empty: none.
fs::path config_path() {
  if (const char* named = variable(kFileVariable)) return named;
  const char* config = variable("XDG_CONFIG_HOME");
  const char* home = variable("HOME");
  if ((config == nullptr || *config == '\0') && (home == nullptr || *home == '\0')) return {};
  const fs::path folder =
      config != nullptr && *config != '\0' ? fs::path(config) : fs::path(home) / ".config";
  return folder / "tersewire" / "config.json";
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw WrongUsage(fmt::format("{}: {}", file.string(), what));
}

std::string text_of(const fs::path& file, const std::string& key, const nlohmann::json& value) {
  if (value.is_string()) {
    auto text = value.get<std::string>();
    if (text.find('\0') == std::string::npos) return text;
    refuse(file, fmt::format("'{}' contains a NUL; write plain text", key));
  }
  if (value.is_number() || value.is_boolean()) return value.dump();
  refuse(file, fmt::format("'{}' must be a text, a number, true or false", key));
}

// What the configuration file says; an object.
nlohmann::json read_config() {
  const fs::path file = config_path();
  // Unless it is named it need not be there, nor in a folder that this process may read.
  const bool optional = variable(kFileVariable) == nullptr;
  if (file.empty() || (optional && ::access(file.c_str(), F_OK) != 0)) {
    return nlohmann::json::object();
  }
  const auto text = as_usage([&] { return small_text_if_exists(file.string()); });
  if (!text)
    refuse(file,
           fmt::format("there is no such file; have {} name another, or unset it", kFileVariable));
  std::set<std::string> keys;
  const auto once = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& key) {
    if (depth > 1 || event != nlohmann::json::parse_event_t::key) return true;
    if (keys.insert(key.get<std::string>()).second) return true;
    refuse(file, fmt::format("'{}' is given twice; keep one", key.get<std::string>()));
  };
  const auto config = nlohmann::json::parse(*text, once, false);
  if (!config.is_object()) refuse(file, "it is not a JSON object; write {\"threads\": 4}");
  std::vector<std::string> known;
  for (const Defaultable& entry : defaultables()) known.emplace_back(entry.option);
  for (const auto& [key, value] : config.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      refuse(file,
             fmt::format("unknown setting '{}'{}", key,
                         did_you_mean(key, known, fmt::format("use {}", fmt::join(known, ", ")))));
    }
    text_of(file, key, value);
  }
  return config;
}

std::optional<Default> default_of(const Defaultable& entry, const nlohmann::json& config) {
  const std::string name = variable_of(entry.option);
  if (const char* value = variable(name.c_str())) return Default{value, name};
  const auto found = config.find(entry.option);
  if (found == config.end()) return std::nullopt;
  const fs::path file = config_path();
  return Default{text_of(file, entry.option, *found), file.string()};
}

[[noreturn]] void refuse(const Default& wrong, const Defaultable& entry, const std::string& what) {
  throw WrongUsage(wrong.source == variable_of(entry.option)
                       ? fmt::format("{}: {}", wrong.source, what)
                       : fmt::format("{}, '{}': {}", wrong.source, entry.option, what));
}

// A codec or a transport is otherwise looked at only by the command that uses it.
void check_text(const Default& given, const Defaultable& entry, bool may_be_auto) {
  const std::string_view option = entry.option;
  try {
    if (option == "transport") choose_transport(given.value);
    if (option != "codec" || (may_be_auto && given.value == trainer::kAutoCodec)) return;
    make_codec(given.value);
  } catch (const Error& error) {
    refuse(given, entry, error.what());
  }
}

// To the option that takes it.
void give(CLI::Option& option, const Default& given, const Defaultable& entry) {
  try {
    option.add_result(given.value);
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    refuse(given, entry, error.what());
  }
}

bool is_for(const Defaultable& entry, const CLI::App& command) {
  return std::ranges::find(entry.commands, command.get_name()) != entry.commands.end();
}

// A codec for everything would not go with one for a part.
bool is_settled(const CLI::App& command, const CLI::Option& option) {
  if (option.count() > 0) return true;
  if (!option.check_lname("codec")) return false;
  for (const char* name : kPartialCodecOptions) {
    const CLI::Option* other = command.get_option_no_throw(name);
    if (other != nullptr && other->count() > 0) return true;
  }
  return false;
}

// Null where the program is built without the command.
CLI::Option* option_of(CLI::App& app, std::string_view name, const Defaultable& entry) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() != name) continue;
    return command->get_option_no_throw(fmt::format("--{}", entry.option));
  }
  return nullptr;
}

}  // namespace

std::string apply_defaults(CLI::App& command) {
  const nlohmann::json config = read_config();
  std::string said;
  for (const Defaultable& entry : defaultables()) {
    if (!is_for(entry, command)) continue;
    CLI::Option& option = *command.get_option(fmt::format("--{}", entry.option));
    if (is_settled(command, option)) continue;
    const auto given = default_of(entry, config);
    if (!given) continue;
    check_text(*given, entry, command.get_name() == "train");
    give(option, *given, entry);
    if (!entry.computes) continue;
    said += fmt::format("; {} says --{} {}", given->source, entry.option, given->value);
  }
  return said;
}

bool quiet_by_default() {
  const Defaultable& entry = defaultables().front();
  const auto given = default_of(entry, read_config());
  if (!given) return false;
  if (given->value != "true" && given->value != "false") {
    refuse(*given, entry, fmt::format("'{}' is neither true nor false", given->value));
  }
  return given->value == "true";
}

void forget_defaults() {
  for (const Defaultable& entry : defaultables()) ::unsetenv(variable_of(entry.option).c_str());
  ::setenv(kFileVariable, "", 1);
}

std::vector<EffectiveDefault> effective_defaults(CLI::App& app) {
  const nlohmann::json config = read_config();
  std::vector<EffectiveDefault> defaults;
  for (const Defaultable& entry : defaultables()) {
    const auto given = default_of(entry, config);
    const auto add = [&](std::string command, const std::string& built_in) {
      defaults.push_back({std::move(command), entry.option, given ? given->value : built_in,
                          given ? given->source : "built in"});
    };
    if (entry.commands.empty()) add("every command", "false");
    for (const std::string_view name : entry.commands) {
      CLI::Option* const option = option_of(app, name, entry);
      if (option == nullptr) continue;
      if (given) {
        check_text(*given, entry, true);
        give(*option, *given, entry);
      }
      const bool is_flag = option->get_items_expected_max() == 0;
      add(std::string(name), is_flag ? "false" : option->get_default_str());
    }
  }
  return defaults;
}

}  // namespace tersewire::apps
