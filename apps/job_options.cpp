// Options of every command that runs a job.
#include <CLI/CLI.hpp>

#include "apps/command.h"
#include "tersewire/communicator.h"

namespace tersewire::apps {
namespace {

constexpr int kMostServers = 1024;
constexpr int kMostBackupWorkers = 1023;
constexpr int kMostLocalSteps = 1 << 20;

int servers_number(const std::string& text) {
  if (text == "colocated") return Job::kColocated;
  const std::string wrong = CLI::Range(0, kMostServers)(text);
  if (wrong.empty()) return std::stoi(text);
  throw CLI::ValidationError("--servers", wrong + ", and not colocated");
}

}  // namespace

void add_exchange_options(CLI::App& command, std::string& exchange, std::optional<int>& servers,
                          int& backup_workers, int& local_steps, bool& raw_from_all) {
  command
      .add_option("--exchange", exchange,
                  "Which node sends what to whom: parameter-server, gradient-server, "
                  "aggregator-tree, all-gather, ring, hierarchical-ring or weight-average "
                  "(docs/exchanges.md)")
      ->capture_default_str();
  command.add_option_function<std::string>(
      "--servers", [&servers](const std::string& text) { servers = servers_number(text); },
      "Servers (default: as many as the exchange needs), or colocated: one on every worker's node");
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
}

}  // namespace tersewire::apps
