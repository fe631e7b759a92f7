// The transports that there are: what each takes, and who joins it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "errors.h"
#include "tersewire/setting_text.h"
#include "tersewire/transports.h"

namespace tersewire {
namespace {

using Ends = std::vector<std::unique_ptr<Transport>>;

// Where a launcher says what it started: variables of the environment.
struct LauncherVariables {
  const char* processes;
  const char* rank;
  const char* processes_here;
};

struct TransportEntry {
  const char* name;
  bool between_processes;  // unless the text says otherwise
  std::vector<std::string> keys;
  // Takes those from the text.
  void (*take_options)(SettingText& text, ChosenTransport& chosen);
  Ends (*join)(const ChosenTransport& chosen, int nodes, const WaitLimits& limits);
  std::vector<LauncherVariables> launchers = {};
};

void take_modelled_rate(SettingText& text, ChosenTransport& chosen) {
  const std::string rate = text.take_word("rate");
  if (rate.empty()) return;
  chosen.bits_per_second = parsed_rate(rate);
  if (!chosen.bits_per_second) text.refuse("rate", "a rate, as 10mbit, 1gbit or 2.5gbit", rate);
}

void refuse_rate(SettingText& text, ChosenTransport& /*chosen*/) {
  if (text.take_word("rate").empty()) return;
  text.fail(
      "it goes at the rate of its network; limit that with lab/netlab, or use transport "
      "in-process");
}

Ends join_threads(const ChosenTransport& chosen, int nodes, const WaitLimits& /*limits*/) {
  return make_in_process_network(nodes, chosen.bits_per_second.value_or(0));
}

// Without a hub the nodes are here, and so is theirs.
void take_place(SettingText& text, ChosenTransport& chosen) {
  refuse_rate(text, chosen);
  GrpcPlace place{.hub = text.take_word("hub"), .rank = std::nullopt, .name = {}, .security = {}};
  const std::string rank = text.take_word("rank");
  place.name = text.take_word("name");
  place.security.certificates = text.take_word("certs");
  place.security.insecure = text.take_switch("insecure", false);
  const bool alone = !rank.empty() || !place.name.empty() || !place.security.certificates.empty();
  if (place.hub.empty()) {
    if (alone || place.security.insecure) text.fail("say which hub with hub=HOST:PORT");
    return;
  }
  place.rank = parsed_number<int>(rank);
  const bool is_certified = rank.empty() && !place.security.certificates.empty();
  if (!rank.empty() && !place.name.empty()) text.fail("a node has a rank or a name, not both");
  if (!is_certified && place.name.empty() && place.rank.value_or(-1) < 0) {
    text.refuse("rank", "this node's number, from 0 on", rank);
  }
  chosen.between_processes = true;
  chosen.grpc = std::move(place);
}

Ends join_grpc(const ChosenTransport& chosen, int nodes, const WaitLimits& limits) {
  if (!chosen.grpc) return make_grpc_network(nodes, limits);
  const auto& [hub, rank, name, security] = *chosen.grpc;
  if (!name.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is a name, and the nodes of this job have ranks: give it rank=R, or train with "
         "--elastic",
         name);
  }
  Ends ends;
  ends.push_back(
      join_grpc_network(hub, rank ? *rank : certified_rank(security), nodes, security, limits));
  return ends;
}

Ends join_mpi(const ChosenTransport& /*chosen*/, int /*nodes*/, const WaitLimits& limits) {
  Ends ends;
  ends.push_back(join_mpi_network(limits));
  return ends;
}

const std::vector<TransportEntry>& transports() {
  static const std::vector<TransportEntry> all{
      {.name = "in-process",
       .between_processes = false,
       .keys = {"rate"},
       .take_options = take_modelled_rate,
       .join = join_threads},
      {.name = "mpi",
       .between_processes = true,
       .keys = {},
       .take_options = refuse_rate,
       .join = join_mpi,
       // Open MPI's, and those of MPICH and its kin.
       .launchers = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                     {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"}}},
      {.name = "grpc",
       .between_processes = false,
       .keys = {"hub", "rank", "name", "certs", "insecure"},
       .take_options = take_place,
       .join = join_grpc}};
  return all;
}

struct Choice {
  const TransportEntry& entry;
  ChosenTransport chosen;
};

Choice choose(std::string_view text) {
  SettingText setting(text, "transport");
  std::vector<std::string> names;
  for (const TransportEntry& entry : transports()) {
    names.emplace_back(entry.name);
    if (setting.name() != entry.name) continue;
    Choice choice{.entry = entry,
                  .chosen = {.name = entry.name,
                             .between_processes = entry.between_processes,
                             .launched = !entry.launchers.empty(),
                             .grpc = std::nullopt,
                             .bits_per_second = std::nullopt}};
    entry.take_options(setting, choice.chosen);
    setting.finish(entry.keys);
    return choice;
  }
  setting.refuse_name(names);
}

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : parsed_number<int>(text).value_or(0);
}

}  // namespace

ChosenTransport choose_transport(std::string_view text) { return choose(text).chosen; }

std::vector<std::unique_ptr<Transport>> join_network(std::string_view text, int nodes,
                                                     const WaitLimits& limits) {
  const auto [entry, chosen] = choose(text);
  return entry.join(chosen, nodes, limits);
}

std::optional<LaunchedJob> launched_job() {
  for (const TransportEntry& entry : transports()) {
    for (const LauncherVariables& launcher : entry.launchers) {
      const int processes = number_in(launcher.processes);
      if (processes <= 1) continue;
      return LaunchedJob{.transport = entry.name,
                         .processes = processes,
                         .processes_here = number_in(launcher.processes_here),
                         .rank = number_in(launcher.rank)};
    }
  }
  return std::nullopt;
}

std::optional<double> parsed_rate(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  double rate = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, rate);
  const std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  const auto* found =
      std::ranges::find(kUnits, unit, [](const auto& known) { return known.first; });
  if (error != std::errc() || found == kUnits.end() || !std::isfinite(rate) || rate <= 0) {
    return std::nullopt;
  }
  return rate * found->second;
}

}  // namespace tersewire
