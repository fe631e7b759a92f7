#include "apps/cli/job_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "apps/cli/failures.h"
#include "apps/cli/plain_numbers.h"
#include "tersewire/communicator.h"
#include "tersewire/setting_text.h"
#include "tersewire/transports.h"
#include "trainer/settings/part_values.h"

namespace tersewire::apps {
namespace {

std::string option_name(const trainer::Setting& setting) {
  return fmt::format("--{}", setting.key);
}

// A whole number from 0 on, or a word that stands for `meaning`.
int number_or_word(const char* option, const std::string& text, std::uint64_t most,
                   const char* word, int meaning) {
  if (text == word) return meaning;
  std::string wrong = wrong_with_whole_number(text, false);
  if (wrong.empty()) wrong = CLI::Range(std::uint64_t{0}, most)(text);
  if (wrong.empty()) return std::stoi(text);
  throw CLI::ValidationError(option, fmt::format("{}, and not {}", wrong, word));
}

std::size_t part_values_number(const std::string& text) {
  const auto values = trainer::part_values_in(text);
  if (!values) {
    throw CLI::ValidationError("--part-values",
                               "'" + text + "' is neither a number of values nor 'whole'");
  }
  const std::string wrong =
      *values == Job::kWholeTensors ? "" : wrong_with_whole_number(text, false);
  if (!wrong.empty()) throw CLI::ValidationError("--part-values", wrong);
  return *values;
}

}  // namespace

nlohmann::json setting_json(std::chrono::milliseconds member) {
  return std::chrono::duration_cast<std::chrono::seconds>(member).count();
}

nlohmann::json setting_json(trainer::StalenessSetting<const int> member) {
  if (member.value == Job::kUnbounded) return trainer::setting_value(member);
  return member.value;
}

nlohmann::json setting_json(trainer::ServersSetting<const std::optional<int>> member) {
  if (member.value == Job::kColocated) return trainer::setting_value(member);
  return setting_json(member.value);
}

nlohmann::json setting_json(trainer::PartValuesSetting<const std::size_t> member) {
  if (member.value == Job::kWholeTensors) return trainer::part_values_text(member.value);
  return member.value;
}

double rate_argument(const std::string& text) {
  if (const auto rate = parsed_rate(text)) return *rate;
  throw WrongUsage(fmt::format("'{}' is not a rate; write 10mbit, 1gbit or 2.5gbit", text));
}

std::string transport_argument(const std::string& transport, const std::string& rate) {
  if (rate.empty()) return transport;
  rate_argument(rate);
  return as_usage([&] {
    SettingText text(transport, "transport");
    if (text.set_default("rate", rate) != rate) text.fail("rate is given twice; give it once");
    return text.text();
  });
}

void check_launcher(const std::string& transport, bool has_option) {
  if (choose_transport(transport).between_processes) return;
  const auto job = launched_job();
  if (!job) return;
  if (job->rank > 0) throw ToldElsewhere();
  const std::string started =
      job->processes > 0
          ? fmt::format("{} processes were started, and each would run on its own", job->processes)
          : "a launcher has started this process, and each that it starts would run on its own";
  if (!has_option) throw WrongUsage(started + "; start it once, without the launcher");
  throw WrongUsage(fmt::format(
      "{}; give --transport {} to make them one job, or --transport {} for separate runs", started,
      job->transport, transport));
}

std::shared_ptr<const Codec> codec_argument(const std::string& text) {
  return as_usage([&] { return make_codec(text); });
}

void add_part_values_option(CLI::App& command, std::size_t& part_values, const std::string& help) {
  command
      .add_option_function<std::string>(
          "--part-values",
          [&part_values](const std::string& text) { part_values = part_values_number(text); }, help)
      ->default_str(std::to_string(Job::kDefaultPartValues));
}

void add_servers_option(CLI::App& command, std::optional<int>& servers, std::uint64_t most,
                        const std::string& help) {
  command.add_option_function<std::string>(
      "--servers",
      [&servers, most](const std::string& text) {
        servers = number_or_word("--servers", text, most, trainer::kColocatedText, Job::kColocated);
      },
      help);
}

template <typename Value>
void SettingOptions::add(const trainer::Setting& setting, Value& value) const {
  CLI::Option* option = command_.add_option(option_name(setting), value, setting.help);
  if (setting.shows_default) option->capture_default_str();
  if (setting.most == 0) return;
  if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, double>) {
    option->check(CLI::Range(static_cast<Value>(setting.least), static_cast<Value>(setting.most)));
  } else {
    option->check(CLI::Range(setting.least, setting.most));
  }
}

void SettingOptions::operator()(const trainer::Setting& setting, std::string& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting, bool& value) const {
  command_.add_flag(option_name(setting), value, setting.help);
}

void SettingOptions::operator()(const trainer::Setting& setting, int& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting, std::uint64_t& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting, double& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                std::optional<double>& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                std::optional<std::size_t>& value) const {
  add(setting, value);
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                std::chrono::milliseconds& value) const {
  command_
      .add_option_function<std::uint64_t>(
          option_name(setting),
          [&value](std::uint64_t seconds) { value = std::chrono::seconds(seconds); }, setting.help)
      ->default_str(trainer::setting_value(value))
      ->check(CLI::Range(setting.least, setting.most));
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                trainer::StalenessSetting<int> staleness) const {
  command_
      .add_option_function<std::string>(
          option_name(setting),
          [value = &staleness.value, most = setting.most](const std::string& text) {
            *value = number_or_word("--staleness", text, most, trainer::kUnboundedText,
                                    Job::kUnbounded);
          },
          setting.help)
      ->default_str(trainer::setting_value(trainer::StalenessSetting<const int>{staleness.value}));
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                trainer::ServersSetting<std::optional<int>> servers) const {
  add_servers_option(command_, servers.value, setting.most, setting.help);
}

void SettingOptions::operator()(const trainer::Setting& setting,
                                trainer::PartValuesSetting<std::size_t> part_values) const {
  add_part_values_option(command_, part_values.value, setting.help);
}

}  // namespace tersewire::apps
