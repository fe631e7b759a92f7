// What an exchange would lose in a restart: saved by every node of a job after the same step, and
// given to the nodes of the job that goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tersewire {

struct Job;

// What a node would lose in a restart, beside the model and what its Update keeps. Each list has an
// entry for every part of the job (job_parts()): as many values as the part, or none where the node
// keeps none. Residuals are by element, whatever else an exchange cuts tensors into.
struct NodeState {
  // The last step that is in it; a server's may be the last one that was exchanged
  // (Job::local_steps).
  std::uint64_t step = 0;
  // Residuals of what the node sends towards the sum: gradients, weights, partial sums. A ring's
  // worker has one for each element, of a sum on its way or of a complete one.
  std::vector<std::vector<float>> pushed;
  // Residuals of what it sends as a result: a server's, the root's of a tree. Where servers share a
  // part, the others' elements are 0.
  std::vector<std::vector<float>> pulled;
  // Sums of the gradients since the last exchange, within a round of Job::local_steps. They may
  // hold a NaN or an infinity; residuals never do.
  std::vector<std::vector<float>> accumulated;
  // A worker's: the shared model as it knows it, where its own parameters are others
  // (Job::keeps_shared_copy()). The same values on all workers.
  std::vector<std::vector<float>> shared;
};

// Takes a server's state; called by the server's thread.
using SaveState = std::function<void(NodeState)>;

// The states of job `from`, with which job `to` can go on although it has another number of workers
// or servers, or its servers elsewhere.
//   nodes    of `from`: workers in the order of ranks, then servers or aggregators; all of the same
//            step. With colocated servers a worker's holds its server's too.
//   returns  those of `to`, in the same order
//
// - `pushed` and `accumulated` of worker w go to worker w modulo the new number, where they are
//   added up; workers that get none begin at zero. Every worker gets `shared`.
// - An aggregator's residual is of a mean over the n workers below it: each of them gets it, and
//   the new aggregators begin at zero.
// - `pulled` is added up over all servers, and goes to those that own it now.
//
// A node that is lost stands there with empty lists: nothing is kept of what it had.
//
// Kept is the sum: what is still to be delivered, of the gradients of all workers together. A mean
// over W' workers in place of W gives it the weight 1 / W' in place of 1 / W, as it does to every
// gradient; only `pulled` of a parameter-server, gradient-server or aggregator-tree, which is of
// the mean or what came of it, keeps its weight. Not kept is who delivers it, and when.
//
// Throws kInvalidArgument where the states are not those of `from`, where the tensors, the exchange
// (its `top` too) or the clock (local_steps, local_updates, fragments, delay) of the two jobs
// differ; how they are cut into parts may. Cost: the memory of the new states.
std::vector<NodeState> redistribute(std::span<const NodeState> nodes, const Job& from,
                                    const Job& to);

}  // namespace tersewire
