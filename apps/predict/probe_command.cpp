// tersewire probe: what links and codecs do here, for predictions.
#include <CLI/CLI.hpp>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/cli/quantities.h"
#include "tersewire/probe.h"
#include "tersewire/transports.h"
#include "trainer/files/probe_json.h"

namespace tersewire::apps {
namespace {

constexpr const char* kProbeExamples = R"(Examples:
  mpirun -n 2 --host a,b tersewire probe --json > probe.json
  tersewire predict --model resnet50 --workers 8 --compute-ms 120 --probe probe.json
  sudo lab/netlab run --nodes 3 --rate 100mbit -- tersewire probe
Rank 0 and every other node in turn send to each other, while nothing else runs; then rank 0 times
the codecs on one of its cores. The rate is the lowest of all, in bits of the link: TCP puts 1448
bytes of a message in 1514.)";

struct ProbeFlags {
  std::string transport = "mpi";
  std::string rate;
  int nodes = 2;
  std::uint64_t deadline_seconds = 120;
  bool json = false;
};

std::string probe_text(const Probe& probe) {
  std::string text =
      fmt::format("{:<6} {:>14} {:>14} {:>10}\n", "node", "to it", "from it", "latency");
  for (const ProbedPeer& peer : probe.peers) {
    text +=
        fmt::format("{:<6} {:>14} {:>14} {:>10}\n", peer.rank, rate_text(peer.bits_per_second_to),
                    rate_text(peer.bits_per_second_from), seconds_text(peer.latency_seconds));
  }
  text += fmt::format("\n{} cores; nanoseconds a value, by one of them\n{:<16} {:>7} {:>7}\n",
                      probe.cores, "codec", "encode", "decode");
  for (const ProbedCodec& codec : probe.codecs) {
    text += fmt::format("{:<16} {:>7.2f} {:>7.2f}\n", codec.codec,
                        codec.encode_seconds_per_value * 1e9, codec.decode_seconds_per_value * 1e9);
  }
  return text;
}

void say(const ProbeFlags& flags, const Probe& probe) {
  print(flags.json ? json_text(trainer::probe_json(probe)) + "\n" : probe_text(probe));
}

// Nodes that are threads of this process: their links are modelled.
void probe_threads(const ProbeFlags& flags, const WaitLimits& limits) {
  const auto ends = as_usage([&] { return join_network(flags.transport, flags.nodes, limits); });
  std::vector<std::jthread> others;
  for (std::size_t node = 1; node < ends.size(); ++node) {
    others.emplace_back([&ends, &limits, node] {
      try {
        probe_network(*ends[node], limits);
      } catch (const std::exception& error) {
        ends[node]->abort(error.what());
      }
    });
  }
  try {
    say(flags, probe(*ends.front(), limits));
  } catch (const std::exception& error) {
    ends.front()->abort(error.what());
    throw;
  }
}

void probe_processes(const ProbeFlags& flags, const WaitLimits& limits) {
  const auto end = join_mpi_network(limits);
  try {
    const Probe found = probe(*end, limits);
    if (end->rank() == 0) say(flags, found);
  } catch (const std::exception& error) {
    end->abort(error.what());
    if (end->rank() != 0 && told_by_rank_0(error)) throw ToldElsewhere();
    throw;
  }
}

void run_probe(ProbeFlags flags) {
  const WaitLimits limits{.deadline = std::chrono::seconds(flags.deadline_seconds)};
  flags.transport = transport_argument(flags.transport, flags.rate);
  const std::string name = as_usage([&] { return choose_transport(flags.transport).name; });
  if (name == "mpi") return probe_processes(flags, limits);
  if (name == "in-process") return probe_threads(flags, limits);
  throw WrongUsage(fmt::format("a probe goes over mpi or in-process, not over {}", name));
}

}  // namespace

void add_probe_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "probe", "Measure the network's rate and latency, the cores, and the codecs' speeds");
  command->footer(kProbeExamples);
  auto flags = std::make_shared<ProbeFlags>();
  command
      ->add_option("--transport", flags->transport,
                   "mpi (processes that mpirun starts), or in-process (threads; "
                   "in-process:rate=20mbit,delay=40ms models links)")
      ->capture_default_str();
  command->add_option("--nodes", flags->nodes, "Nodes of transport in-process")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option("--rate", flags->rate, "The same as rate=RATE in --transport: 10mbit, 1gbit");
  command
      ->add_option("--deadline", flags->deadline_seconds,
                   "Seconds of silence of a node after which a probe ends")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{WaitLimits::kLongest.count()}));
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags] { run_probe(*flags); });
}

}  // namespace tersewire::apps
