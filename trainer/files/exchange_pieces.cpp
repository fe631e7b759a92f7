#include "trainer/files/exchange_pieces.h"

#include <fmt/format.h>

#include <utility>

#include "tersewire/error.h"
#include "trainer/settings/part_values.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kPartValues = "part_values";  // a fact

using Lists = std::vector<std::vector<float>>;

// How the job that made a checkpoint cut its tensors; not at all, where it does not say.
std::size_t part_values_of(const JobCheckpoint& checkpoint) {
  const auto& facts = checkpoint.nodes.front().facts;
  const auto found = facts.find(kPartValues);
  if (found == facts.end()) return Job::kWholeTensors;
  if (const auto values = part_values_in(found->second)) return *values;
  throw Error(ErrorCode::kDataLoss, "the checkpoint's part size '" + found->second +
                                        "' is not a number of values; use another copy of it");
}

Lists lists_in(const StoredNode& node, const std::string& group, const Job& job,
               const std::vector<Part>& parts) {
  Lists lists(parts.size());
  for (const Part& part : parts) {
    const auto found = node.arrays.find(array_key(group, job.tensors[part.tensor], part));
    if (found == node.arrays.end()) continue;
    const StoredArray& array = found->second;
    if (array.elems != part.elems) {
      throw Error(
          ErrorCode::kDataLoss,
          fmt::format("'{}' of rank {} has {} values, and this model has {}; go on with the "
                      "model that it is of, and one version everywhere",
                      found->first, node.rank, array.elems, part.elems));
    }
    lists[part.number].resize(part.elems);
    array.read(0, lists[part.number]);
  }
  return lists;
}

// `job`, as the one was that made the checkpoint.
Job maker_of(const JobCheckpoint& checkpoint, const Job& job) {
  Job made_by = job;
  made_by.workers = checkpoint.workers;
  made_by.servers = checkpoint.servers;
  made_by.part_values = part_values_of(checkpoint);
  return made_by;
}

}  // namespace

void add_values(NodeCheckpoint& checkpoint, const std::string& group, const TensorInfo& tensor,
                const Part& part, std::span<const float> values) {
  const bool whole = part.elems == tensor.elems();
  checkpoint.arrays[array_key(group, tensor, part)] = {
      whole ? tensor.shape : std::vector<std::uint64_t>{part.elems},
      {values.begin(), values.end()}};
}

void add_exchange(NodeCheckpoint& checkpoint, const NodeState& state, const Job& job,
                  const std::vector<Part>& parts) {
  checkpoint.facts[kPartValues] = part_values_text(job.part_values);
  for (const auto& [group, lists] : {std::pair{kPushedGroup, &state.pushed},
                                     {kPulledGroup, &state.pulled},
                                     {kAccumulatedGroup, &state.accumulated},
                                     {kSharedGroup, &state.shared},
                                     {kFollowedGroup, &state.followed}}) {
    for (const Part& part : parts) {
      const std::vector<float>& values = (*lists)[part.number];
      if (!values.empty()) add_values(checkpoint, group, job.tensors[part.tensor], part, values);
    }
  }
}

ExchangeReader::ExchangeReader(const JobCheckpoint& checkpoint, const Job& job)
    : checkpoint_(checkpoint), made_by_(maker_of(checkpoint, job)), parts_(job_parts(made_by_)) {
  const int nodes = made_by_.workers + server_nodes(made_by_);
  if (std::ssize(checkpoint.nodes) != nodes) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the checkpoint has " + std::to_string(checkpoint.nodes.size()) +
                    " nodes, but its job has " + std::to_string(nodes) +
                    "; resume with the exchange that it was made with");
  }
  // Who has the same place goes on with what it had.
  if (!checkpoint.reordered && made_by_.workers == job.workers &&
      server_nodes(made_by_) == server_nodes(job) && parts_ == job_parts(job) &&
      part_servers(made_by_) == part_servers(job)) {
    return;
  }
  std::vector<NodeState> states;
  for (const StoredNode& node : checkpoint.nodes) states.push_back(state_in(node));
  redistributed_ = redistribute(states, made_by_, job);
}

NodeState ExchangeReader::state_in(const StoredNode& node) const {
  return {.step = node.step,
          .rank = node.rank,
          .workers = made_by_.workers,
          .servers = server_nodes(made_by_),
          .pushed = lists_in(node, kPushedGroup, made_by_, parts_),
          .pulled = lists_in(node, kPulledGroup, made_by_, parts_),
          .accumulated = lists_in(node, kAccumulatedGroup, made_by_, parts_),
          .shared = made_by_.keeps_shared_copy() ? lists_in(node, kSharedGroup, made_by_, parts_)
                                                 : Lists(parts_.size()),
          .followed = lists_in(node, kFollowedGroup, made_by_, parts_)};
}

NodeState ExchangeReader::state_of(int rank) const {
  const auto number = static_cast<std::size_t>(rank);
  return redistributed_.empty() ? state_in(checkpoint_.nodes[number]) : redistributed_[number];
}

}  // namespace tersewire::trainer
