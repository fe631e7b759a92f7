#include "apps/cli/job_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/failures.h"
#include "apps/cli/plain_numbers.h"
#include "tersewire/communicator.h"
#include "trainer/part_values.h"

namespace tersewire::apps {
namespace {

constexpr int kMostServers = 1024;
constexpr int kMostBackupWorkers = 1023;
constexpr int kMostLocalSteps = 1 << 20;

int servers_number(const std::string& text) {
  if (text == "colocated") return Job::kColocated;
  std::string wrong = wrong_with_whole_number(text, false);
  if (wrong.empty()) wrong = CLI::Range(0, kMostServers)(text);
  if (wrong.empty()) return std::stoi(text);
  throw CLI::ValidationError("--servers", wrong + ", and not colocated");
}

std::size_t part_values_number(const std::string& text) {
  const auto values = trainer::part_values_in(text);
  if (!values) {
    throw CLI::ValidationError("--part-values",
                               "'" + text + "' is not a number of values, nor whole");
  }
  const std::string wrong =
      *values == Job::kWholeTensors ? "" : wrong_with_whole_number(text, false);
  if (!wrong.empty()) throw CLI::ValidationError("--part-values", wrong);
  return *values;
}

}  // namespace

nlohmann::json part_values_json(std::size_t part_values) {
  if (part_values == Job::kWholeTensors) return trainer::part_values_text(part_values);
  return part_values;
}

double rate_argument(const std::string& text) {
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  const std::string unit(static_cast<const char*>(end), text.data() + text.size());
  constexpr std::array<std::pair<const char*, double>, 4> kUnits = {
      {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  const auto* found = std::ranges::find(kUnits, unit, &std::pair<const char*, double>::first);
  if (error != std::errc() || found == kUnits.end() || !std::isfinite(rate) || rate <= 0) {
    throw WrongUsage(fmt::format("'{}' is not a rate; write 10mbit, 1gbit or 2.5gbit", text));
  }
  return rate * found->second;
}

std::shared_ptr<const Codec> codec_argument(const std::string& text) {
  return as_usage([&] { return make_codec(text); });
}

void add_part_values_option(CLI::App& command, std::size_t& part_values, std::string_view what,
                            std::string_view one) {
  command
      .add_option_function<std::string>(
          "--part-values",
          [&part_values](const std::string& text) { part_values = part_values_number(text); },
          fmt::format(
              "Cut {} into parts of so many values at most, a scale and a residual each, or "
              "whole: one {}",
              what, one))
      ->default_str(std::to_string(Job::kDefaultPartValues));
}

void add_servers_option(CLI::App& command, std::optional<int>& servers) {
  command.add_option_function<std::string>(
      "--servers", [&servers](const std::string& text) { servers = servers_number(text); },
      "Servers (default: as many as the exchange needs), or colocated: one on every worker's node");
}

void add_exchange_options(CLI::App& command, std::string& exchange, std::optional<int>& servers,
                          int& backup_workers, int& local_steps, bool& raw_from_all,
                          std::size_t& part_values, std::optional<std::size_t>& bucket_bytes) {
  command
      .add_option("--exchange", exchange,
                  "Which node sends what to whom: parameter-server, gradient-server, "
                  "aggregator-tree, all-gather, ring, hierarchical-ring or weight-average "
                  "(docs/exchanges.md)")
      ->capture_default_str();
  add_servers_option(command, servers);
  command
      .add_option("--backup-workers", backup_workers,
                  "Workers whose gradients a step need not wait for")
      ->capture_default_str()
      ->check(CLI::Range(0, kMostBackupWorkers));
  command
      .add_option("--local-steps", local_steps,
                  "Steps whose gradients a worker adds up before it sends their mean")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostLocalSteps));
  command.add_flag("--raw-from-all", raw_from_all,
                   "Send a tensor that is not finite on one worker uncompressed from every worker");
  add_part_values_option(command, part_values, "tensors", "a tensor");
  command
      .add_option(
          "--bucket-bytes", bucket_bytes,
          "Send gradients that go the same way in messages of so many bytes of them at least; "
          "a ring cuts these into a block for each worker (default: by workers and model)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 40));
}

}  // namespace tersewire::apps
