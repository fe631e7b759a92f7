#include "place_job.h"

#include <algorithm>

#include "exchange_table.h"
#include "ring_layout.h"

namespace tersewire {
namespace {

// Tensors that have the same owner go the same way; those that are added up in one have the same
// codecs.
std::vector<std::uint64_t> ways_of(const Placement& placement, const Exchange& exchange) {
  if (exchange.carries == StateChange::kSums) return ring_ways(placement);
  std::vector<std::uint64_t> ways(placement.job.tensors.size(), 0);
  std::ranges::copy(placement.owners, ways.begin());
  return ways;
}

void fuse_tensors(Placement& placement, const std::vector<std::uint64_t>& ways) {
  placement.buckets = make_buckets(placement.job, ways);
  placement.bucket_of.resize(ways.size());
  for (std::size_t bucket = 0; bucket < placement.buckets.size(); ++bucket) {
    for (const std::size_t tensor : placement.buckets[bucket]) {
      placement.bucket_of[tensor] = bucket;
    }
  }
}

}  // namespace

std::vector<int> owners_of(const Job& job) {
  const Exchange& exchange = choose_exchange(job).exchange;
  const int servers = count_servers(job);
  if (exchange.shards) return place_tensors(job, servers);
  if (exchange.tree) return std::vector<int>(job.tensors.size(), job.workers + servers - 1);
  return {};
}

std::shared_ptr<const Placement> place_job(const Job& job) {
  static_cast<void>(server_nodes(job));  // throws for a job that makes no sense
  const ChosenExchange chosen = choose_exchange(job);
  auto placement = std::make_shared<Placement>();
  placement->job = job;
  placement->options = chosen.options;
  placement->servers = count_servers(job);
  placement->push_codecs = choose_push_codecs(job);
  placement->pull_codecs = choose_pull_codecs(job);
  placement->owners = owners_of(job);
  if (chosen.exchange.tree) placement->tree = make_tree(job.workers, chosen.options.fan_in);
  fuse_tensors(*placement, ways_of(*placement, chosen.exchange));
  return placement;
}

}  // namespace tersewire
