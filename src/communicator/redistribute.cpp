#include <algorithm>

#include "errors.h"
#include "exchange_table.h"
#include "place_job.h"
#include "ring_layout.h"
#include "state_check.h"
#include "tersewire/counted.h"

namespace tersewire {
namespace {

std::size_t nodes_of(const Job& job) {
  return static_cast<std::size_t>(job.workers + server_nodes(job));
}

void check_jobs(const Placement& from, const Placement& to) {
  const ChosenExchange old_exchange = choose_exchange(from.job);
  const ChosenExchange new_exchange = choose_exchange(to.job);
  if (&old_exchange.exchange != &new_exchange.exchange || from.options.top != to.options.top) {
    fail(
        ErrorCode::kInvalidArgument,
        "the states are of a job with exchange {}, and cannot go on with {}; use the same exchange",
        from.job.exchange, to.job.exchange);
  }
  if (from.job.local_steps != to.job.local_steps) {
    fail(ErrorCode::kInvalidArgument,
         "the states are of a job with {}, and cannot go on with {}; use as many",
         counted(from.job.local_steps, "local step"), to.job.local_steps);
  }
  if (from.job.local_updates != to.job.local_updates) {
    fail(ErrorCode::kInvalidArgument,
         "the states are of a job with {}, and cannot go on with {}; use as many",
         counted(from.job.local_updates, "local update"), to.job.local_updates);
  }
  if (from.job.fragments != to.job.fragments || from.job.delay != to.job.delay) {
    fail(ErrorCode::kInvalidArgument,
         "the states are of a job with {} and a delay of {}, and cannot go on with {} and {}; use "
         "the same",
         counted(from.job.fragments, "fragment"), from.job.delay, to.job.fragments, to.job.delay);
  }
  const auto same = [](const TensorInfo& a, const TensorInfo& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (!std::ranges::equal(from.job.tensors, to.job.tensors, same)) {
    fail(ErrorCode::kInvalidArgument,
         "the states are of a job with other tensors; resume with the same model");
  }
}

void check_states(const Placement& from, std::span<const NodeState> nodes) {
  if (nodes.size() != nodes_of(from.job)) {
    fail(ErrorCode::kInvalidArgument, "a job of {} needs one state for each, and not {}",
         counted(nodes_of(from.job), "node"), nodes.size());
  }
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    check_state(from, static_cast<int>(rank), nodes[rank]);
  }
  const std::uint64_t step = nodes.front().step;
  const std::uint64_t exchanged = last_step_of(from.job, exchanges_in(from.job, nodes.front()));
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const bool worker = rank < static_cast<std::size_t>(from.job.workers);
    const std::uint64_t expected = worker ? step : exchanged;
    if (nodes[rank].step == expected) continue;
    fail(ErrorCode::kInvalidArgument,
         "the state of rank {} is of step {}, not of step {}, which goes with step {} of rank 0; "
         "use states saved after the same step",
         rank, nodes[rank].step, expected, step);
  }
}

// What of some parts' values is of the parts that the same tensors are cut into now; 0 where a part
// has others too.
PartValues recut(const Placement& from, const PartValues& values, const Placement& to) {
  if (from.parts == to.parts) return values;
  PartValues now(to.parts.size());
  for (const Part& part : to.parts) {
    const std::size_t end = part.begin + part.elems;
    for (std::size_t i = from.first_part[part.tensor]; i < from.first_part[part.tensor + 1]; ++i) {
      const Part& old = from.parts[i];
      const std::size_t first = std::max(part.begin, old.begin);
      const std::size_t last = std::min(end, old.begin + old.elems);
      if (first >= last || values[i].empty()) continue;
      now[part.number].resize(part.elems, 0.0F);
      std::ranges::copy(std::span(values[i]).subspan(first - old.begin, last - first),
                        now[part.number].begin() + static_cast<std::ptrdiff_t>(first - part.begin));
    }
  }
  return now;
}

std::vector<NodeState> recut(const Placement& from, std::span<const NodeState> nodes,
                             const Placement& to) {
  std::vector<NodeState> states;
  for (const NodeState& node : nodes) {
    states.push_back({.step = node.step,
                      .pushed = recut(from, node.pushed, to),
                      .pulled = recut(from, node.pulled, to),
                      .accumulated = recut(from, node.accumulated, to),
                      .shared = recut(from, node.shared, to),
                      .followed = PartValues(to.parts.size())});
  }
  return states;
}

void add(const PartValues& values, PartValues& sums) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i].resize(std::max(sums[i].size(), values[i].size()), 0.0F);
    for (std::size_t j = 0; j < values[i].size(); ++j) sums[i][j] += values[i][j];
  }
}

// The workers whose gradients a node sends on: its own, or those below an aggregator.
std::vector<std::size_t> workers_below(const Placement& placement, std::size_t rank) {
  if (rank < static_cast<std::size_t>(placement.job.workers)) return {rank};
  std::vector<std::size_t> workers;
  if (placement.tree.empty()) return workers;
  const TreeNode& node = placement.tree[rank];
  for (int child = 0; child < node.children; ++child) {
    const auto below = workers_below(placement, static_cast<std::size_t>(node.first_child + child));
    workers.insert(workers.end(), below.begin(), below.end());
  }
  return workers;
}

// Of every part that one of the states has values of, all of these have: 0 where they had none.
void fill_gaps(std::span<NodeState> states, PartValues NodeState::*list,
               const std::vector<std::size_t>& elems) {
  for (NodeState& state : states) {
    for (std::size_t i = 0; i < elems.size(); ++i) (state.*list)[i].resize(elems[i], 0.0F);
  }
}

// How many values of each part some node has.
std::vector<std::size_t> lengths(std::span<const NodeState> states, PartValues NodeState::*list) {
  std::vector<std::size_t> elems((states.front().*list).size(), 0);
  for (const NodeState& state : states) {
    for (std::size_t i = 0; i < elems.size(); ++i) {
      elems[i] = std::max(elems[i], (state.*list)[i].size());
    }
  }
  return elems;
}

void give_to_workers(const Placement& from, std::span<const NodeState> nodes,
                     std::span<NodeState> workers) {
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    for (const std::size_t worker : workers_below(from, rank)) {
      add(nodes[rank].pushed, workers[worker % workers.size()].pushed);
    }
    if (rank >= static_cast<std::size_t>(from.job.workers)) continue;
    add(nodes[rank].accumulated, workers[rank % workers.size()].accumulated);
  }
  fill_gaps(workers, &NodeState::accumulated, lengths(nodes, &NodeState::accumulated));
}

// Servers above the groups of a ring share every part.
void give_blocks(const std::shared_ptr<const Placement>& to, const PartValues& sums,
                 std::span<NodeState> states) {
  const RingLayout layout(to);
  for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    for (std::size_t block = 0; block < layout.group(); ++block) {
      NodeState& server = states[static_cast<std::size_t>(layout.server_of(block))];
      for (const PartRun& run : layout.part_runs(bucket, layout.block(block))) {
        const std::vector<float>& sum = sums[run.part];
        if (sum.empty()) continue;
        std::vector<float>& values = server.pulled[run.part];
        values.resize(sum.size(), 0.0F);
        std::ranges::copy(std::span(sum).subspan(run.begin, run.elems),
                          values.begin() + static_cast<std::ptrdiff_t>(run.begin));
      }
    }
  }
}

// Of a node that has died nothing is known: what it still had to deliver is not.
bool is_lost(const NodeState& node) {
  const auto nothing = [](const std::vector<float>& values) { return values.empty(); };
  return std::ranges::all_of(node.pushed, nothing) && std::ranges::all_of(node.pulled, nothing);
}

void fill_results(const Placement& placement, PartValues& sums) {
  for (const Part& part : placement.parts) {
    if (placement.pull_codecs[part.number]->keeps_residual()) {
      sums[part.number].resize(part.elems, 0.0F);
    }
  }
}

void give_to_servers(const std::shared_ptr<const Placement>& to, PartValues sums,
                     std::span<NodeState> states) {
  if (to->options.top == RingTop::kTree) return give_blocks(to, sums, states);
  const std::vector<int> owners = part_servers(to->job);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    states[static_cast<std::size_t>(owners[i])].pulled[i] = std::move(sums[i]);
  }
}

// Nothing is owed of parts whose pushes are differences: they begin anew, as in a new job.
void begin_anew(const Placement& from, const Placement& to, std::span<NodeState> states) {
  const std::vector<int> owners = part_servers(to.job);
  for (const Part& part : to.parts) {
    const bool follows = to.follows[part.number];
    if (!follows && !from.follows[from.first_part[part.tensor]]) continue;
    for (NodeState& state : states) std::ranges::fill(state.pushed[part.number], 0.0F);
    if (!follows) continue;
    const auto first = states.begin() + (to.servers == 0 ? 0 : owners[part.number]);
    const int averaging = to.servers == 0 ? to.job.workers : 1;
    std::for_each_n(first, averaging,
                    [&](NodeState& state) { state.followed[part.number].assign(part.elems, 0); });
  }
}

}  // namespace

std::vector<NodeState> redistribute(std::span<const NodeState> given, const Job& from,
                                    const Job& to) {
  const auto old_placement = place_job(from);
  const auto placement = place_job(to);
  check_jobs(*old_placement, *placement);
  check_states(*old_placement, given);
  const std::vector<NodeState> nodes = recut(*old_placement, given, *placement);
  const std::uint64_t exchanges = exchanges_in(from, nodes.front());
  std::vector<NodeState> states;
  for (int rank = 0; rank < to.workers + server_nodes(to); ++rank) {
    states.push_back(empty_state(*placement, rank, exchanges));
  }
  const std::span workers = std::span(states).first(static_cast<std::size_t>(to.workers));
  for (NodeState& worker : workers) {
    worker.step = nodes.front().step;
    worker.shared = nodes.front().shared;
  }
  give_to_workers(*old_placement, nodes, workers);
  // All but the root of a tree send sums, and keep what these lose.
  fill_gaps(placement->tree.empty() ? workers : std::span(states).first(states.size() - 1),
            &NodeState::pushed, lengths(nodes, &NodeState::pushed));
  PartValues results(placement->parts.size());
  for (const NodeState& node : nodes) add(node.pulled, results);
  if (std::ranges::any_of(nodes, is_lost)) fill_results(*placement, results);
  give_to_servers(placement, std::move(results), states);
  begin_anew(*old_placement, *placement, states);
  return states;
}

}  // namespace tersewire
