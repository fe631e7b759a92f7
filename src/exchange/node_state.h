// What nodes of exchanges share of saving and resuming (state.h): residuals go from encoders into a
// NodeState, by part and element, and back.
//
// Why the states of all nodes fit together. The state after step s is that in which every encoder
// has encoded what belongs to the steps up to s, and nothing later. A worker is in it when it has
// pulled all of step s and pushed nothing of s + 1: whatever it had to encode for s had to be there
// before its own pull, or another's, could end. A server is in it between two messages: nobody
// pushes anything of s + 1 before pulling all of s, so that no part gets past s + 1 before all
// are past s; it looks when the last one has got past s. Messages that hold steps up to s have then
// been received, and later ones are made again after a restart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "errors.h"
#include "placement.h"
#include "tersewire/communicator.h"
#include "tersewire/state.h"

namespace tersewire {

// No job gets to this step, and what is added to a step does not overflow.
inline constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 62;

// Values for each part of a job, or none.
using PartValues = std::vector<std::vector<float>>;

// A run of a part, and the residual that an encoder keeps of it.
struct ResidualRun {
  std::size_t part;
  std::size_t begin;  // of the run, within the part
  std::span<float> residual;
};

// Those of whole parts; `parts` have an encoder each, or none.
template <typename Parts>
std::vector<ResidualRun> residuals_of(const Parts& parts) {
  std::vector<ResidualRun> runs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].encoder) runs.push_back({i, 0, parts[i].encoder->residual()});
  }
  return runs;
}

// What is followed of whole parts, likewise.
template <typename Parts>
std::vector<ResidualRun> followed_of(Parts& parts) {
  std::vector<ResidualRun> runs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].followed) runs.push_back({i, 0, parts[i].followed.values()});
  }
  return runs;
}

// What the runs hold; 0 where a part has other runs too.
PartValues save_residuals(const Placement& placement, std::span<const ResidualRun> runs);

// Overwrites the residuals with what was saved of them. Requires that `saved` has an entry for each
// part, of its length or empty. Throws kInvalidArgument where a run is missing, or where there is
// something that is of no run; residuals are then undefined.
void load_residuals(const Placement& placement, const PartValues& saved,
                    std::span<const ResidualRun> runs);

// Copies of residuals, which go back to where they are from.
class KeptResiduals {
 public:
  void keep(std::span<const ResidualRun> runs);
  // Those of one tensor, except of parts that are followed: `runs` as they were kept.
  void restore(const Placement& placement, std::size_t tensor,
               std::span<const ResidualRun> runs) const;

 private:
  std::vector<float> values_;  // run by run
};

// The same values by tensor: of each all elements, 0 where a part has none, or none at all.
std::vector<std::vector<float>> by_tensor(const Placement& placement, const PartValues& values);

// Throws kInvalidArgument for a job of which there is never a state of all nodes.
void check_has_states(const Job& job, const ExchangeOptions& options);

// The ranks from Job::workers on: none where servers are on workers' nodes.
inline int server_nodes(const Placement& placement) {
  return placement.job.servers == Job::kColocated ? 0 : placement.servers;
}

// The state of the node of this rank after so many exchanges, which holds nothing yet.
NodeState empty_state(const Placement& placement, int rank, std::uint64_t exchanges);

// The step that an exchange ends with; 0 of none.
inline std::uint64_t last_step_of(const Job& job, std::uint64_t exchange) {
  if (job.ladder && job.ladder->last_step) return job.ladder->last_step(exchange);
  return exchange * job.steps_a_round();
}

// The exchanges that have ended with the state's step.
std::uint64_t exchanges_in(const Job& job, const NodeState& state);

// Whether servers save their state after this exchange.
inline bool is_saved_after(const Job& job, std::uint64_t exchange) {
  if (job.state_steps == 0) return false;
  const std::uint64_t step = last_step_of(job, exchange);
  return step % job.state_steps == 0 ||
         (job.state_also_after != nullptr && *job.state_also_after == step);
}

// Whether all that a server has an encoder for, parts or blocks, is past this step. Throws
// kFailedPrecondition where some is past the next one too.
template <typename Parts>
bool all_are_past(const Job& job, std::uint64_t step, const Parts& parts) {
  const auto still_in = [&](const auto& part) { return part.encoder && part.step <= step; };
  if (std::ranges::any_of(parts, still_in)) return false;
  const auto too_far = [&](const auto& part) { return part.encoder && part.step > step + 1; };
  if (std::ranges::any_of(parts, too_far)) {
    fail(ErrorCode::kFailedPrecondition,
         "step {} is to be saved, and some tensors were pushed for the next exchange before others "
         "for its own; let every worker pull all tensors in a step, and then push them all",
         last_step_of(job, step));
  }
  return true;
}

}  // namespace tersewire
