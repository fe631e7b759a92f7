// tersewire hub: where the nodes of a job over the transport grpc meet.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/files/new_file.h"
#include "apps/files/read_file.h"
#include "apps/hub/job_status.h"
#include "apps/run/watch/metrics_server.h"
#include "tersewire/counted.h"
#include "tersewire/grpc_members.h"

namespace tersewire::apps {
namespace {

using std::chrono::milliseconds;

constexpr const char* kHubExamples = R"(Examples:
  tersewire hub --workers 4 --certs hub --listen 0.0.0.0:7100
  tersewire train --workers 4 --transport grpc:hub=HOST:7100,rank=0,certs=node0   on the first node
  tersewire hub --workers 4 --servers 0       for a ring, on this machine alone (or by ssh -L)
  tersewire hub --workers 8 --min-workers 4 --max-workers 12 --journal hub.journal
  tersewire hub --workers 8 --min-workers 4 --servers 2         servers come and go as well
One job: the hub ends when its nodes have left. It reports on stderr, one line per event, who joins
and leaves. Ranks 0 to N-1 are workers, the next ones servers. 'tersewire certs' makes certificates
(docs/deploying.md).)";

// For nodes to hear that the job is over.
constexpr milliseconds kFarewell(10000);
constexpr milliseconds kLook(250);

struct HubFlags {
  int workers = 0;
  std::optional<int> servers;
  std::optional<int> least;
  std::optional<int> most;
  std::optional<std::uint64_t> deadline_seconds;
  std::optional<std::uint64_t> join_steps;
  std::string journal;
  std::string metrics;
  std::string listen = "127.0.0.1:7100";
  GrpcSecurity security;
};

void say(std::string sentence) {
  note(fmt::format("{:%FT%TZ} {}\n", fmt::gmtime(std::time(nullptr)),
                   one_line(std::move(sentence))));
}

void say_events(GrpcHub& hub) {
  for (std::string& event : hub.take_events()) say(std::move(event));
}

// One process at a time keeps a journal. A hub that could not write it would be found out when it
// has been killed.
HubJournal journal_at(const std::string& path) {
  if (path.empty()) return {};
  const auto kept = read_file_if_exists(path);
  const NewFile writable(path);
  return {.kept = kept.value_or(Bytes()),
          .keep = [path](ByteView bytes) { write_new_file(path, bytes); }};
}

// What the library says of a journal, whose file it does not know.
template <typename Make>
std::unique_ptr<GrpcHub> with_journal_named(const std::string& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (!std::string_view(error.what()).starts_with("the journal ")) throw;
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
  }
}

std::unique_ptr<GrpcHub> make_hub(const HubFlags& flags) {
  if (flags.least) {
    MembershipLimits limits{.first = flags.workers,
                            .least = *flags.least,
                            .most = flags.most.value_or(flags.workers),
                            .servers = flags.servers.value_or(0),
                            .join_steps = flags.join_steps.value_or(1)};
    if (flags.deadline_seconds) limits.deadline = std::chrono::seconds(*flags.deadline_seconds);
    return std::make_unique<GrpcHub>(flags.listen, limits, journal_at(flags.journal),
                                     flags.security);
  }
  if (flags.most || flags.deadline_seconds || flags.join_steps) {
    throw WrongUsage(fmt::format("{} is for jobs whose members change; give --min-workers as well",
                                 flags.most               ? "--max-workers"
                                 : flags.deadline_seconds ? "--deadline"
                                                          : "--join-at"));
  }
  return std::make_unique<GrpcHub>(flags.listen, flags.workers + flags.servers.value_or(1),
                                   journal_at(flags.journal), flags.security);
}

// Nodes and strangers take one or two each.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void run_hub(const HubFlags& flags) {
  end_on_signals();
  raise_descriptor_limit();
  const std::unique_ptr<GrpcHub> owned =
      as_usage([&] { return with_journal_named(flags.journal, [&] { return make_hub(flags); }); });
  GrpcHub& hub = *owned;
  const int servers = flags.servers.value_or(0);
  const std::string and_servers = servers > 0 ? " and " + counted(servers, "server") : "";
  say(flags.least
          ? fmt::format("a hub for {}{} that come and go listens at {}",
                        counted(flags.workers, "worker"), and_servers, hub.address())
          : fmt::format("a hub for {} listens at {}",
                        counted(flags.workers + flags.servers.value_or(1), "node"), hub.address()));
  if (flags.security.certificates.empty()) {
    say("without --certs nothing is encrypted, and anyone who can reach the port can join");
  }
  std::unique_ptr<MetricsServer> metrics;
  if (!flags.metrics.empty()) {
    metrics = serve_metrics(flags.metrics, [&hub] { return prometheus_text(hub.status()); });
  }
  while (!hub.wait(kLook) && !interrupted && hub.aborted().empty()) say_events(hub);
  if (interrupted) {
    hub.abort(
        fmt::format("{} ended the hub; start it and all nodes again, with --resume where "
                    "there are checkpoints",
                    interruption()));
  }
  const std::string why = hub.aborted();
  if (!why.empty()) static_cast<void>(hub.wait(kFarewell));
  say_events(hub);
  if (!why.empty()) throw Error(ErrorCode::kAborted, why);
  say("every node has left");
}

}  // namespace

void add_hub_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("hub", "Run the hub that a job's nodes connect to (grpc)");
  command->footer(kHubExamples);
  auto flags = std::make_shared<HubFlags>();
  command->add_option("--workers", flags->workers, "Workers of the job")
      ->required()
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--servers", flags->servers,
                   "Server nodes the exchange needs: none for rings, all-gather, weight-average "
                   "and colocated servers [1; 0 with --min-workers]")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--min-workers", flags->least,
                   "Let nodes come and go ('train --elastic'); save and end the job if fewer "
                   "workers, or no server, remain")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--max-workers", flags->most,
                   "Maximum number of workers at a time; others wait for a place [--workers]")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--deadline", flags->deadline_seconds,
                   "With --min-workers: seconds of silence after which a node counts as dead [30 "
                   "at first, then 20 times the 99th percentile of silences, from 10 to 120]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{86400}));
  command
      ->add_option("--join-at", flags->join_steps,
                   "Let nodes join after multiples of this many steps [at the next state]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command->add_option("--journal", flags->journal,
                      "File from which a hub that is restarted learns who has joined and left");
  command->add_option("--metrics", flags->metrics,
                      "[ADDRESS:]PORT on which Prometheus finds the job's metrics");
  command
      ->add_option("--listen", flags->listen,
                   "ADDRESS:PORT; 0.0.0.0 or [::]: all addresses; port 0: any that is free")
      ->capture_default_str();
  CLI::Option* certificates = command->add_option(
      "--certs", flags->security.certificates,
      "Directory of the hub's key.pem, certificate.pem and authority.pem ('tersewire certs')");
  command
      ->add_flag("--insecure", flags->security.insecure,
                 "Allow plaintext beyond this machine: anyone on the network can read and change "
                 "messages, and join as a node")
      ->excludes(certificates);
  command->callback([flags] { run_hub(*flags); });
}

}  // namespace tersewire::apps
