#include "exchange_table.h"

#include <algorithm>

#include "all_gather.h"
#include "errors.h"
#include "ladder.h"
#include "parameter_server.h"
#include "policy_for.h"
#include "ring.h"
#include "ring_aggregator.h"
#include "ring_layout.h"
#include "tersewire/counted.h"
#include "tersewire/predict.h"
#include "weight_average.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kMostChildren = 1 << 20;
constexpr std::uint64_t kMostStepsBetween = 1'000'000'000;  // two averages

void take_scaler_sharing(SettingText& text, const Job& /*job*/, ExchangeOptions& options) {
  options.scaler_sharing = text.take_switch("scaler-sharing", options.scaler_sharing);
}

void take_fan_in(SettingText& text, const Job& /*job*/, ExchangeOptions& options) {
  const auto fallback = static_cast<std::uint64_t>(options.fan_in);
  options.fan_in = static_cast<int>(text.take_integer("fan-in", fallback, 2, kMostChildren));
}

void take_weight_average(SettingText& text, const Job& /*job*/, ExchangeOptions& options) {
  options.average_every = text.take_integer("every", 1, 1, kMostStepsBetween);
  options.average_asynchronous = text.take_choice("mode", {"synchronous", "asynchronous"}) == 1;
}

void take_one_group(SettingText& /*text*/, const Job& job, ExchangeOptions& options) {
  options.group = job.workers;
}

void take_groups(SettingText& text, const Job& job, ExchangeOptions& options) {
  const int workers = std::max(job.workers, 1);
  options.group = static_cast<int>(
      text.take_integer("group", static_cast<std::uint64_t>(default_group(workers)), 1,
                        static_cast<std::uint64_t>(workers)));
  if (workers % options.group != 0) {
    text.refuse("group", fmt::format("a number that divides the {} workers", workers),
                std::to_string(options.group));
  }
  options.top = text.take_choice("top", {"ring", "tree"}) == 1 ? RingTop::kTree : RingTop::kRing;
}

// How many servers a job has that share so many parts of its tensors; one unless it says.
int shared_by(const Job& job, std::size_t parts, std::string_view what, std::string_view whats) {
  const int servers = job.servers.value_or(1);
  // As many as a program gives a job whose model it has yet to make.
  constexpr std::size_t kAnyNumber = 1 << 30;
  const auto most = static_cast<int>(std::min(parts, kAnyNumber));
  const std::string range = most == 1 ? "1 server" : fmt::format("1 to {} servers", most);
  if (servers == Job::kColocated) {
    fail(ErrorCode::kInvalidArgument, "exchange {} has no colocated servers; use {}", job.exchange,
         range);
  }
  if (servers < 1 && parts >= kAnyNumber) {
    fail(ErrorCode::kInvalidArgument, "exchange {} cannot have {} servers; use 1 or more",
         job.exchange, servers);
  }
  if (servers < 1 || servers > most) {
    fail(ErrorCode::kInvalidArgument, "{} servers cannot share {}; use {}", servers,
         counted(most, what, whats), range);
  }
  return servers;
}

int count_no_servers(const Job& job) {
  if (job.servers.value_or(0) == 0) return 0;
  fail(ErrorCode::kInvalidArgument, "exchange {} has no servers; omit their number", job.exchange);
}

// A server without a part would have nothing to do.
int count_part_servers(const Job& job, const ExchangeOptions& /*options*/) {
  const std::size_t parts = most_owners(job);
  if (job.servers == Job::kColocated) {
    return static_cast<int>(std::min(parts, static_cast<std::size_t>(std::max(job.workers, 0))));
  }
  return shared_by(job, parts, "part of a tensor", "parts of tensors");
}

int count_aggregators(const Job& job, const ExchangeOptions& options) {
  const int needed = static_cast<int>(make_tree(job.workers, options.fan_in).size()) - job.workers;
  if (job.servers.value_or(needed) == needed) return needed;
  fail(ErrorCode::kInvalidArgument, "a tree over {} with fan-in={} has {}; omit their number",
       counted(job.workers, "worker"), options.fan_in, counted(needed, "aggregator"));
}

int count_ring_servers(const Job& job, const ExchangeOptions& options) {
  if (options.top == RingTop::kRing) return count_no_servers(job);
  return shared_by(job, static_cast<std::size_t>(options.group), "block of a bucket",
                   "blocks of a bucket");
}

const std::vector<Exchange>& exchanges() {
  static const std::vector<Exchange> all{
      {.name = "parameter-server",
       .traits = {.shards = true, .elastic = true},
       .carries = StateChange::kGradients,
       .pulls = StateChange::kModelDeltas,
       .count_servers = count_part_servers,
       .make_worker = make_parameter_server_worker,
       .make_server = make_parameter_server},
      {.name = "gradient-server",
       .traits = {.workers_own_model = true, .shards = true, .elastic = true},
       .carries = StateChange::kGradients,
       .pulls = StateChange::kMeans,
       .parameters = {{"scaler-sharing", "off", "on, off",
                       fmt::format("agree on the scalers of {} first, and send sums exactly",
                                   codecs_with(&CodecTraits::shares_scalers))}},
       .take_options = take_scaler_sharing,
       .count_servers = count_part_servers,
       .make_worker = make_parameter_server_worker,
       .make_server = make_parameter_server},
      {.name = "aggregator-tree",
       .carries = StateChange::kGradients,
       .pulls = StateChange::kModelDeltas,
       .tree = true,
       .parameters = {{"fan-in", "4", "2 to 2^20", "children of an aggregator, at most"}},
       .take_options = take_fan_in,
       .count_servers = count_aggregators,
       .make_worker = make_parameter_server_worker,
       .make_server = make_parameter_server},
      {.name = "all-gather",
       .traits = {.workers_own_model = true, .elastic = true},
       .carries = StateChange::kGradients,
       .make_worker = make_all_gather_worker},
      {.name = "ring",
       .traits = {.workers_own_model = true, .elastic = true},
       .carries = StateChange::kSums,
       .take_options = take_one_group,
       .make_worker = make_ring_worker},
      {.name = "hierarchical-ring",
       .traits = {.workers_own_model = true},
       .carries = StateChange::kSums,
       .parameters = {{"group", "near the square root of the workers", "1 to the workers",
                       "workers in each ring at the leaves; it must divide the workers"},
                      {"top", "ring", "ring, tree",
                       "what adds up the groups' sums: rings, or servers"}},
       .take_options = take_groups,
       .count_servers = count_ring_servers,
       .make_worker = make_ring_worker,
       .make_server = make_ring_aggregator},
      {.name = "weight-average",
       .traits = {.workers_own_model = true, .averages_weights = true},
       .carries = StateChange::kWeights,
       .parameters = {{"every", "1", "1 to 1000000000", "steps between two averages"},
                      {"mode", "synchronous", "synchronous, asynchronous",
                       "with all others, or one at a time"}},
       .take_options = take_weight_average,
       .make_worker = make_weight_average_worker}};
  return all;
}

const Exchange& exchange_of(const SettingText& text) {
  const auto found = std::ranges::find(exchanges(), text.name(), &Exchange::name);
  if (found != exchanges().end()) return *found;
  const auto names = exchange_names();
  text.refuse_name({names.begin(), names.end()});
}

void check_fits(const Codec& codec, const Exchange& exchange) {
  if (fits(codec.traits(), exchange.carries)) return;
  if (exchange.carries == StateChange::kSums) {
    fail(ErrorCode::kInvalidArgument,
         "codec {} does not fit exchange {}, where its error would grow with every hop; use {}, or "
         "another exchange",
         codec_name(codec.id()), exchange.name, codecs_with(&CodecTraits::fits_sums));
  }
  fail(ErrorCode::kInvalidArgument,
       "codec {} does not fit weights, each of which must arrive nearly exact; use {}, or another "
       "exchange",
       codec_name(codec.id()), codecs_with(&CodecTraits::fits_weights));
}

StateChange carried_in_rung(const Job& job, std::size_t rung, StateChange carried) {
  return carried_after(job.local_updates > 0 ? job.ladder->steps[rung] : 0, carried);
}

// By tensor.
std::vector<std::shared_ptr<const Codec>> choose(const Job& job, StateChange carried,
                                                 const std::string& codec) {
  auto codecs = choose_codecs_for(carried, job.policy, codec, job.tensors);
  // Weights alone come with a gradient for each.
  if (exchange_traits(job.exchange).averages_weights) return codecs;
  for (const auto& each : codecs) {
    if (!each->needs_gradient()) continue;
    fail(ErrorCode::kInvalidArgument,
         "codec {} derives its bits from the gradient of the encoded values, which only "
         "weight-average provides; use bits-from=entropy, or bits=N",
         each->text());
  }
  return codecs;
}

// By rung and tensor.
std::vector<std::vector<std::shared_ptr<const Codec>>> rungs_of(
    const Job& job, StateChange carried, const std::vector<std::string>& codecs) {
  std::vector<std::vector<std::shared_ptr<const Codec>>> rungs;
  for (std::size_t rung = 0; rung < codecs.size(); ++rung) {
    rungs.push_back(choose(job, carried_in_rung(job, rung, carried), codecs[rung]));
  }
  return rungs;
}

}  // namespace

ChosenExchange choose_exchange(const Job& job) {
  SettingText text(job.exchange, "exchange");
  const Exchange& exchange = exchange_of(text);
  ChosenExchange chosen{.exchange = exchange, .options = {}};
  if (exchange.take_options != nullptr) exchange.take_options(text, job, chosen.options);
  text.finish(keys_of(exchange.parameters));
  return chosen;
}

const ExchangeTraits& exchange_traits(std::string_view exchange) {
  return exchange_of(SettingText(exchange, "exchange")).traits;
}

std::vector<std::string_view> exchange_names() {
  std::vector<std::string_view> names;
  for (const Exchange& exchange : exchanges()) names.push_back(exchange.name);
  return names;
}

int count_servers(const Job& job) {
  const auto [exchange, options] = choose_exchange(job);
  return exchange.count_servers == nullptr ? count_no_servers(job)
                                           : exchange.count_servers(job, options);
}

bool is_colocated(const Job& job) {
  return job.servers == Job::kColocated && exchange_traits(job.exchange).shards;
}

std::vector<std::shared_ptr<const Codec>> choose_push_codecs(const Job& job) {
  const Exchange& exchange = choose_exchange(job).exchange;
  if (!job.ladder) {
    return choose(job, carried_after(job.local_updates, exchange.carries), job.push_codec);
  }
  const auto rungs = rungs_of(job, exchange.carries, job.ladder->codecs);
  for (const auto& codecs : rungs) {
    for (const auto& codec : codecs) {
      check_fits(*codec, exchange);
      if (!codec->sends_differences()) continue;
      fail(ErrorCode::kInvalidArgument,
           "codec {} sends differences, which no other codec can continue; omit ef=21, or use one "
           "codec throughout",
           codec->text());
    }
  }
  return make_ladder(rungs, job.ladder->rung);
}

std::vector<std::shared_ptr<const Codec>> choose_pull_codecs(const Job& job) {
  const StateChange pulls = choose_exchange(job).exchange.pulls;
  if (!job.ladder) return choose(job, carried_after(job.local_updates, pulls), job.pull_codec);
  const CodecLadder& ladder = *job.ladder;
  return make_ladder(
      rungs_of(job, pulls, ladder.pull_codecs.empty() ? ladder.codecs : ladder.pull_codecs),
      ladder.rung);
}

void check_push_codecs(const ChosenExchange& chosen,
                       const std::vector<std::shared_ptr<const Codec>>& codecs) {
  for (const auto& codec : codecs) check_fits(*codec, chosen.exchange);
  const auto shares_scalers = [](const auto& codec) { return codec->traits().shares_scalers; };
  if (chosen.options.scaler_sharing && std::ranges::none_of(codecs, shares_scalers)) {
    fail(ErrorCode::kInvalidArgument,
         "scaler sharing is for tensors that are pushed with codec {}, and there are none; use one "
         "of them, or scaler-sharing=off",
         codecs_with(&CodecTraits::shares_scalers));
  }
}

}  // namespace tersewire
