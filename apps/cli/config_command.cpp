// tersewire config: what a user's defaults come to.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/output.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfigExamples = R"(Examples:
  TERSEWIRE_THREADS=4 tersewire config
  echo '{"codec": "3lc:s=1.75", "threads": 4}' > ~/.config/tersewire/config.json
The command line overrides a recipe, a recipe the environment (TERSEWIRE_THREADS for
--threads), the environment the file ($TERSEWIRE_CONFIG, else tersewire/config.json in
$XDG_CONFIG_HOME or ~/.config), and the file the built-in defaults. A resumed run keeps its own
settings.)";

std::string text_of(const std::vector<EffectiveDefault>& defaults) {
  std::string text;
  for (const EffectiveDefault& found : defaults) {
    text += fmt::format("{:<18} {:<14} {:<14} {}\n", "--" + found.option, found.command,
                        found.value, found.source);
  }
  return text;
}

Json json_of(const std::vector<EffectiveDefault>& defaults) {
  Json list = Json::array();
  for (const EffectiveDefault& found : defaults) {
    list.push_back({{"option", found.option},
                    {"command", found.command},
                    {"value", found.value},
                    {"from", found.source}});
  }
  return list;
}

}  // namespace

void add_config_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("config", "Show the defaults of options, and where they come from");
  command->footer(kConfigExamples);
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([as_json, &app] {
    const auto defaults = effective_defaults(app);
    print(*as_json ? json_text(json_of(defaults)) + "\n" : text_of(defaults));
  });
}

}  // namespace tersewire::apps
