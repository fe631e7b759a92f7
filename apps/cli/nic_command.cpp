// tersewire nic: INCEPTIONN's network card as a daemon.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "nic/daemon.h"

namespace tersewire::apps {
namespace {

constexpr const char* kNicExamples = R"(Examples:
  sudo tersewire nic --interface eth0
  sudo tersewire nic --interface eth0 --codec inceptionn:bound=2^-8
  sudo lab/netlab run --nodes 4 --rate 10mbit --nic inceptionn:bound=2^-10 -- ./program
Compresses the floats in TCP packets that leave with type of service 0x28, where the connection's
other end has a card too, and restores them as they arrive. A program declares which bytes are
floats by tersewire_nic_floats() of libtersewire-nic.so; with mode=paper all are. On SIGINT or
SIGTERM it ends and prints its counters. See docs/hardware.md.)";

std::string counters_text(const nic::CardCounters& counters) {
  return json_text(nlohmann::ordered_json{{"passed", counters.passed},
                                          {"announced", counters.announced},
                                          {"compressed", counters.compressed},
                                          {"kept", counters.kept},
                                          {"restored", counters.restored},
                                          {"dropped", counters.dropped},
                                          {"bytes_before", counters.bytes_before},
                                          {"bytes_after", counters.bytes_after},
                                          {"notices", counters.notices}},
                   -1) +
         "\n";
}

void run_nic(const nic::DaemonConfig& config) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int stop = ::signalfd(-1, &ends, SFD_CLOEXEC);
  if (stop < 0) fail_file("signals", "read", errno);
  const nic::CardCounters counters = as_usage([&] {
    return nic::run_daemon(config, stop, [&] {
      note(fmt::format("tersewire nic: {} on {}\n", config.codec, config.interface));
    });
  });
  ::close(stop);
  print(counters_text(counters));
}

}  // namespace

void add_nic_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "nic", "Compress other programs' packets, as a network card would (Linux, root)");
  command->footer(kNicExamples);
  auto config = std::make_shared<nic::DaemonConfig>();
  config->codec = "inceptionn:bound=2^-10";
  command->add_option("--interface", config->interface, "Interface whose packets are compressed")
      ->required();
  command->add_option("--codec", config->codec, "inceptionn, with its bound and mode")
      ->capture_default_str();
  command->callback([config] { run_nic(*config); });
}

}  // namespace tersewire::apps
