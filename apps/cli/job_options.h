// Arguments that several commands take alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tersewire/codec.h"
#include "trainer/settings/train_config.h"

namespace CLI {
class App;
}

namespace tersewire::apps {

using trainer::kMaxThreads;

// Registers an option for each setting that it is called with (trainer/settings/train_config.h),
// which sets that member: it is what trainer::visit_settings() takes.
class SettingOptions {
 public:
  explicit SettingOptions(CLI::App& command) : command_(command) {}

  void operator()(const trainer::Setting& setting, std::string& value) const;
  void operator()(const trainer::Setting& setting, bool& value) const;
  void operator()(const trainer::Setting& setting, int& value) const;
  void operator()(const trainer::Setting& setting, std::uint64_t& value) const;
  void operator()(const trainer::Setting& setting, double& value) const;
  void operator()(const trainer::Setting& setting, std::optional<double>& value) const;
  void operator()(const trainer::Setting& setting, std::optional<std::size_t>& value) const;
  void operator()(const trainer::Setting& setting, std::chrono::milliseconds& value) const;
  void operator()(const trainer::Setting& setting,
                  trainer::StalenessSetting<int> staleness) const;
  void operator()(const trainer::Setting& setting,
                  trainer::ServersSetting<std::optional<int>> servers) const;
  void operator()(const trainer::Setting& setting,
                  trainer::PartValuesSetting<std::size_t> part_values) const;

 private:
  template <typename Value>
  void add(const trainer::Setting& setting, Value& value) const;

  CLI::App& command_;
};

// --servers N|colocated, as Job takes it; at most `most`.
void add_servers_option(CLI::App& command, std::optional<int>& servers, std::uint64_t most,
                        const std::string& help);

// --part-values, of whatever `help` says is cut.
void add_part_values_option(CLI::App& command, std::size_t& part_values, const std::string& help);

// A setting's member in JSON: null where an optional one has no value, times in whole seconds, and
// for part-values a number or "whole".
template <typename Member>
nlohmann::json setting_json(const Member& member) {
  return member;
}
template <typename Value>
nlohmann::json setting_json(const std::optional<Value>& member) {
  return member ? nlohmann::json(*member) : nlohmann::json();
}
nlohmann::json setting_json(std::chrono::milliseconds member);
nlohmann::json setting_json(trainer::StalenessSetting<const int> member);
nlohmann::json setting_json(trainer::ServersSetting<const std::optional<int>> member);
nlohmann::json setting_json(trainer::PartValuesSetting<const std::size_t> member);

// Bits per second of a rate as lab/netlab takes them: 10mbit, 1gbit, 2.5gbit. Throws WrongUsage.
double rate_argument(const std::string& text);

// A transport's text with --rate `rate`, where that is not empty. Throws WrongUsage.
std::string transport_argument(const std::string& transport, const std::string& rate);

// Refuses a command that a launcher has started several times, and of which each process would run
// on its own over `transport`, which the user has not chosen. Throws WrongUsage at rank 0, and
// ToldElsewhere at others.
//   has_option  the command has --transport
void check_launcher(const std::string& transport, bool has_option = true);

// The codec that an argument names. Throws WrongUsage with the library's sentence.
std::shared_ptr<const Codec> codec_argument(const std::string& text);

}  // namespace tersewire::apps
