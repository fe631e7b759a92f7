// tersewire codecs: what there is for --codec.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "tersewire/codec.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCodecsExamples = R"(Examples:
  tersewire codecs
  tersewire codecs --json | jq '.[].name'
A codec is written NAME or NAME:KEY=VALUE,KEY=VALUE, for example 3lc:s=1.75,block=128)";

std::string codecs_text() {
  std::string text;
  for (const CodecDescription& codec : codec_descriptions()) {
    text += fmt::format("{}  {}\n", codec.name, codec.summary);
    for (const CodecParameter& parameter : codec.parameters) {
      text += fmt::format("  {:<11} {:<24} default {:<11} {}\n", parameter.key, parameter.range,
                          parameter.value, parameter.meaning);
    }
  }
  return text;
}

Json codecs_json() {
  Json codecs = Json::array();
  for (const CodecDescription& codec : codec_descriptions()) {
    Json parameters = Json::array();
    for (const CodecParameter& parameter : codec.parameters) {
      parameters.push_back({{"key", parameter.key},
                            {"default", parameter.value},
                            {"range", parameter.range},
                            {"meaning", parameter.meaning}});
    }
    codecs.push_back({{"name", codec.name},
                      {"number", static_cast<int>(codec.id)},
                      {"summary", codec.summary},
                      {"parameters", std::move(parameters)}});
  }
  return codecs;
}

}  // namespace

void add_codecs_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("codecs", "List the codecs and their parameters");
  command->footer(kCodecsExamples);
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback(
      [as_json] { print(*as_json ? json_text(codecs_json()) + "\n" : codecs_text()); });
}

}  // namespace tersewire::apps
