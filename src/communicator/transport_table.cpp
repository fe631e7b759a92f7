// The transports that there are: what each takes, and who joins it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

#include "errors.h"
#include "tersewire/setting_text.h"
#include "tersewire/transports.h"

namespace tersewire {
namespace {

using Ends = std::vector<std::unique_ptr<Transport>>;

// Where a launcher says what it started: variables of the environment.
struct Launcher {
  const char* transport;  // the text of what joins its processes
  const char* processes;
  const char* rank;
  const char* processes_here;
};

constexpr std::array kLaunchers = std::to_array<Launcher>({
    // Open MPI's, and those of MPICH and its kin.
    {"mpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpi", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    // srun's; a script of sbatch itself, which is one process, has none of a step.
    {"grpc:hub=HOST:PORT,rank=$SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
     "SLURM_STEP_TASKS_PER_NODE"},
    {"grpc:hub=HOST:PORT,rank=$FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", nullptr},
    // torchrun's, and of all who imitate it.
    {"grpc:hub=HOST:PORT,rank=$RANK", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"},
});

// The rank by which a process joins PMIx, and so MPI; how many there are is in no variable.
constexpr const char* kPmixRank = "PMIX_RANK";

struct TransportEntry {
  const char* name;
  bool between_processes;  // unless the text says otherwise
  std::vector<std::string> keys;
  // Takes those from the text.
  void (*take_options)(SettingText& text, ChosenTransport& chosen);
  Ends (*join)(const ChosenTransport& chosen, int nodes, const WaitLimits& limits);
  bool launched = false;
};

using Parsed = std::optional<double>(std::string_view);

// `what` a value must be, where it is not absent.
double take_parsed(SettingText& text, const char* key, Parsed& parse, const char* what) {
  const std::string value = text.take_word(key);
  if (value.empty()) return 0;
  const auto parsed = parse(value);
  if (!parsed) text.refuse(key, what, value);
  return *parsed;
}

// 0.1%, as lab/netlab takes it, or 0.001.
std::optional<double> parsed_share(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  if (is_percent) text.remove_suffix(1);
  const auto number = parsed_number<double>(text);
  if (!number) return std::nullopt;
  return is_percent ? *number / 100 : *number;
}

void take_links(SettingText& text, ChosenTransport& chosen) {
  constexpr const char* kTime = "a time, such as 20ms, 300us or 0.5s";
  chosen.links = {
      .bits_per_second =
          take_parsed(text, "rate", parsed_rate, "a rate, such as 10mbit, 1gbit or 2.5gbit"),
      .delay_seconds = take_parsed(text, "delay", parsed_time, kTime),
      .jitter_seconds = take_parsed(text, "jitter", parsed_time, kTime),
      .loss = take_parsed(text, "loss", parsed_share, "a share of frames, such as 0.1% or 0.001"),
      .seed = text.take_integer("seed", 0, 0, std::numeric_limits<std::uint64_t>::max())};
}

void refuse_rate(SettingText& text, ChosenTransport& /*chosen*/) {
  if (text.take_word("rate").empty()) return;
  text.fail(
      "it runs at the rate of its network; limit that with lab/netlab, or use transport "
      "in-process");
}

Ends join_threads(const ChosenTransport& chosen, int nodes, const WaitLimits& /*limits*/) {
  return make_in_process_network(nodes, chosen.links);
}

// Without a hub the nodes are here, and so is theirs.
void take_place(SettingText& text, ChosenTransport& chosen) {
  refuse_rate(text, chosen);
  GrpcPlace place{.hub = text.take_word("hub"),
                  .rank = std::nullopt,
                  .name = {},
                  .security = {},
                  .direct = text.take_word("direct")};
  const std::string rank = text.take_word("rank");
  place.name = text.take_word("name");
  const std::string role = text.take_word("role");
  place.serves = role == "server";
  place.security.certificates = text.take_word("certs");
  place.security.insecure = text.take_switch("insecure", false);
  const bool alone = !rank.empty() || !place.name.empty() || !place.security.certificates.empty() ||
                     !place.direct.empty() || !role.empty();
  if (place.hub.empty()) {
    if (alone || place.security.insecure) text.fail("name the hub with hub=HOST:PORT");
    return;
  }
  place.rank = parsed_number<int>(rank);
  const bool is_certified = rank.empty() && !place.security.certificates.empty();
  if (!rank.empty() && !place.name.empty()) text.fail("a node has a rank or a name, not both");
  if (!role.empty() && !place.serves && role != "worker") {
    text.refuse("role", "worker or server", role);
  }
  if (!rank.empty() && !role.empty())
    text.fail("a rank says whether a node is a server: omit role");
  if (!is_certified && place.name.empty() && place.rank.value_or(-1) < 0) {
    if (!rank.empty()) text.refuse("rank", "this node's number, from 0 on", rank);
    text.fail(
        "say which node this is with rank=R, its number from 0 on, with name=NAME in a job whose "
        "nodes come and go, or with certs=DIR, whose certificate says it");
  }
  chosen.between_processes = true;
  chosen.grpc = std::move(place);
}

Ends join_grpc(const ChosenTransport& chosen, int nodes, const WaitLimits& limits) {
  if (!chosen.grpc) return make_grpc_network(nodes, limits);
  const auto& [hub, rank, name, security, direct, serves] = *chosen.grpc;
  if (serves) {
    fail(ErrorCode::kInvalidArgument,
         "role=server is for jobs whose nodes come and go: omit it, or train with --elastic");
  }
  if (!name.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is a name, and the nodes of this job have ranks: give it rank=R, or train with "
         "--elastic",
         name);
  }
  Ends ends;
  ends.push_back(join_grpc_network(hub, rank ? *rank : certified_rank(security), nodes, security,
                                   limits, direct));
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
       .keys = {"rate", "delay", "jitter", "loss", "seed"},
       .take_options = take_links,
       .join = join_threads},
      {.name = "mpi",
       .between_processes = true,
       .keys = {},
       .take_options = refuse_rate,
       .join = join_mpi,
       .launched = true},
      {.name = "grpc",
       .between_processes = false,
       .keys = {"hub", "rank", "name", "role", "certs", "direct", "insecure"},
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
                             .launched = entry.launched,
                             .grpc = std::nullopt,
                             .links = {}}};
    entry.take_options(setting, choice.chosen);
    setting.finish(entry.keys);
    return choice;
  }
  setting.refuse_name(names);
}

using Unit = std::pair<std::string_view, double>;

// A number right before one of the units.
std::optional<double> parsed_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  const auto found = std::ranges::find(units, unit, &Unit::first);
  if (error != std::errc() || found == units.end() || !std::isfinite(number)) return std::nullopt;
  return number * found->second;
}

int number_in(const char* variable) {
  const char* text = variable == nullptr ? nullptr : std::getenv(variable);
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
  const bool has_pmix = std::getenv(kPmixRank) != nullptr;
  bool alone = false;
  for (const Launcher& launcher : kLaunchers) {
    if (std::getenv(launcher.rank) == nullptr) continue;
    const int processes = number_in(launcher.processes);
    alone = alone || processes == 1;
    if (processes <= 1) continue;
    return LaunchedJob{.transport = has_pmix ? "mpi" : launcher.transport,
                       .processes = processes,
                       .processes_here = number_in(launcher.processes_here),
                       .rank = number_in(launcher.rank)};
  }
  if (alone || !has_pmix) return std::nullopt;
  return LaunchedJob{.transport = "mpi", .processes = 0, .rank = number_in(kPmixRank)};
}

std::optional<double> parsed_rate(std::string_view text) {
  const auto rate = parsed_quantity(
      text, std::to_array<Unit>({{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}));
  return rate && *rate > 0 ? rate : std::nullopt;
}

std::optional<double> parsed_time(std::string_view text) {
  const auto time =
      parsed_quantity(text, std::to_array<Unit>({{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}));
  return time && *time >= 0 ? time : std::nullopt;
}

}  // namespace tersewire
