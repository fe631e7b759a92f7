// What an exchange would lose in a restart: saved by every node of a job after the same step, and
// given to the nodes of the resumed job.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tersewire {

struct Job;

// What a node would lose in a restart, apart from the model and its Update's state. Each list has
// an entry for every part of the job (job_parts()): as many values as the part, or none if the node
// keeps none. Residuals are by element, however else an exchange splits tensors.
//
// What a job continues from must be its node's own: whoever makes a state by hand, or from a file,
// says whose it is.
struct NodeState {
  // The last step in it; a server's may be the last one exchanged (Job::local_steps).
  std::uint64_t step = 0;
  // The node that it is of: its rank (-1: none, and no node continues from that), and its job's
  // numbers of workers and of nodes that are servers (server_nodes()).
  int rank = -1;
  int workers = 0;
  int servers = 0;
  // Residuals of the node's contributions to the sum: gradients, weights, partial sums. A ring's
  // worker has one for each element, of a sum on its way or of a complete one.
  std::vector<std::vector<float>> pushed;
  // Residuals of results that it sends: a server's, or those of a tree's root. If servers share a
  // part, the others' elements are 0.
  std::vector<std::vector<float>> pulled;
  // Sums of the gradients since the last exchange, within a round of Job::local_steps. They may
  // hold a NaN or an infinity; residuals never do.
  std::vector<std::vector<float>> accumulated;
  // A worker's: its copy of the shared model, if its own parameters differ
  // (Job::keeps_shared_copy()). The same values on all workers.
  std::vector<std::vector<float>> shared;
  // The sum of the differences received so far, of parts whose codec sends differences
  // (Encoder::sends_differences()), on the node that averages pushes: a worker of an all-gather,
  // with the same values on all, or a server. `pushed` is then what the worker has sent so far,
  // negated, and owes nothing.
  std::vector<std::vector<float>> followed;
};

// Takes a server's state; called by the server's thread.
using SaveState = std::function<void(NodeState)>;

// Converts the states of job `from` so that job `to` can continue from them, although it has
// another number of workers or servers, or its servers elsewhere.
//   nodes    of `from`: workers in the order of ranks, then servers or aggregators; all of the same
//            step. With colocated servers a worker's state holds its server's too.
//   returns  those of `to`, in the same order
//
// - `pushed` and `accumulated` of worker w go to worker w modulo the new number, where they are
//   added up; workers that get none start at zero. Every worker gets `shared`.
// - An aggregator's residual is of a mean over the n workers below it: each of them gets it, and
//   the new aggregators start at zero.
// - `pulled` is added up over all servers, and goes to the new owners.
//
// - Parts whose codec sends differences, before or now, start again from 0: their `pushed` and
//   `followed` are zeros, since no worker owes anything of them.
//
// A lost node is listed with its rank and empty lists: nothing of its state is kept.
//
// The sum is kept: the undelivered data of the gradients of all workers together. A mean over W'
// workers instead of W gives it the weight 1 / W' instead of 1 / W, as it does to every gradient;
// only `pulled` of a parameter-server, gradient-server or aggregator-tree, which is of the mean or
// its result, keeps its weight. Which node delivers it, and when, is not kept.
//
// Throws kInvalidArgument if the states are not those of `from`, or if the tensors, the exchange
// (its `top` too) or the clock (local_steps, local_updates, fragments, delay) of the two jobs
// differ; how they are split into parts may differ. Cost: the memory of the new states.
std::vector<NodeState> redistribute(std::span<const NodeState> nodes, const Job& from,
                                    const Job& to);

}  // namespace tersewire
