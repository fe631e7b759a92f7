#include "place_job.h"

#include <algorithm>

#include "exchange_table.h"
#include "ring_layout.h"

namespace tersewire {
namespace {

// Parts that have the same owner go the same way; those that are added up in one have the same
// codecs. And what travels together takes its turn together.
std::vector<std::uint64_t> ways_of(const Placement& placement, const Exchange& exchange) {
  std::vector<std::uint64_t> ways(placement.parts.size(), 0);
  if (exchange.carries == StateChange::kSums) {
    ways = ring_ways(placement);
  } else {
    std::ranges::copy(placement.owners, ways.begin());
  }
  for (std::size_t part = 0; part < ways.size(); ++part) {
    ways[part] = ways[part] * placement.fragment_parts.size() + placement.fragment_of[part];
  }
  return ways;
}

// A codec is chosen for a tensor, and its parts travel with that.
std::vector<std::shared_ptr<const Codec>> by_part(
    const std::vector<Part>& parts, const std::vector<std::shared_ptr<const Codec>>& by_tensor) {
  std::vector<std::shared_ptr<const Codec>> codecs;
  codecs.reserve(parts.size());
  for (const Part& part : parts) codecs.push_back(by_tensor[part.tensor]);
  return codecs;
}

void place_parts(Placement& placement, const Exchange& exchange) {
  PartTable table = cut_parts(placement.job);
  placement.parts = std::move(table.parts);
  placement.fragment_of = std::move(table.fragments);
  placement.fragment_parts.resize(static_cast<std::size_t>(placement.job.fragments), 0);
  for (const std::size_t fragment : placement.fragment_of) ++placement.fragment_parts[fragment];
  for (const Part& part : placement.parts) {
    if (part.begin == 0) placement.first_part.push_back(part.number);
  }
  placement.first_part.push_back(placement.parts.size());
  for (const std::size_t server : table.servers) {
    placement.owners.push_back(placement.job.workers + static_cast<int>(server));
  }
  if (exchange.tree) {
    placement.owners.assign(placement.parts.size(), placement.job.workers + placement.servers - 1);
  }
}

void fuse_parts(Placement& placement, const std::vector<std::uint64_t>& ways) {
  placement.buckets = make_buckets(placement.bucket_bytes, placement.parts, ways);
  placement.bucket_of.resize(ways.size());
  for (std::size_t bucket = 0; bucket < placement.buckets.size(); ++bucket) {
    for (const std::size_t part : placement.buckets[bucket]) placement.bucket_of[part] = bucket;
  }
}

// Where the job does not say. Longer messages cost less time and fewer bytes each, shorter ones
// leave more to be sent while gradients are still computed. A ring's bucket is cut into a block for
// each worker of a group, and these into pieces: none is below 64 KiB where the model allows.
std::size_t default_bucket_bytes(const Placement& placement, const Exchange& exchange) {
  constexpr std::uint64_t kLeastMessage = std::uint64_t{1} << 16;
  constexpr std::uint64_t kMostMessage = std::uint64_t{1} << 20;
  constexpr std::uint64_t kMostRingBuckets = 4096;
  constexpr std::uint64_t kServerBuckets = 8;
  std::uint64_t bytes = 0;
  for (const Part& part : placement.parts) bytes += part.elems * sizeof(float);
  if (exchange.carries == StateChange::kSums) {
    const auto pieces = static_cast<std::uint64_t>(
        placement.options.top == RingTop::kTree ? placement.options.group : placement.job.workers);
    return std::max(kLeastMessage * pieces, bytes / kMostRingBuckets);
  }
  const auto owners = static_cast<std::uint64_t>(exchange.traits.shards ? placement.servers : 1);
  return std::clamp(bytes / owners / kServerBuckets, kLeastMessage, kMostMessage);
}

}  // namespace

PartTable cut_parts(const Job& job) {
  const bool shards = choose_exchange(job).exchange.traits.shards;
  return cut_tensors(job, shards ? static_cast<std::size_t>(count_servers(job)) : 0);
}

std::shared_ptr<const Placement> place_job(const Job& job) {
  static_cast<void>(server_nodes(job));  // throws for a job that makes no sense
  const ChosenExchange chosen = choose_exchange(job);
  auto placement = std::make_shared<Placement>();
  placement->job = job;
  placement->options = chosen.options;
  placement->servers = count_servers(job);
  place_parts(*placement, chosen.exchange);
  placement->push_codecs = by_part(placement->parts, choose_push_codecs(job));
  for (const auto& codec : placement->push_codecs) {
    placement->follows.push_back(codec->sends_differences());
  }
  placement->pull_codecs = by_part(placement->parts, choose_pull_codecs(job));
  if (chosen.exchange.tree) placement->tree = make_tree(job.workers, chosen.options.fan_in);
  placement->bucket_bytes =
      job.bucket_bytes.value_or(default_bucket_bytes(*placement, chosen.exchange));
  fuse_parts(*placement, ways_of(*placement, chosen.exchange));
  placement->longest_message = placement->most_message_bytes();
  return placement;
}

}  // namespace tersewire
