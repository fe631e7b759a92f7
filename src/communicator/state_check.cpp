#include "state_check.h"

#include <algorithm>
#include <cmath>

#include "errors.h"

namespace tersewire {
namespace {

// Beyond what any job takes, and what arithmetic with steps needs.
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 62;

struct List {
  const TensorValues& values;
  const char* name;
  bool kept;    // whether this node may have some
  bool finite;  // whether they must be
};

void check_list(const Job& job, const List& list) {
  if (list.values.size() != job.tensors.size()) {
    fail(ErrorCode::kInvalidArgument, "its list '{}' is for {} tensors, and the job has {}",
         list.name, list.values.size(), job.tensors.size());
  }
  for (std::size_t i = 0; i < list.values.size(); ++i) {
    const std::vector<float>& values = list.values[i];
    if (values.empty()) continue;
    const TensorInfo& tensor = job.tensors[i];
    if (!list.kept) {
      fail(ErrorCode::kInvalidArgument,
           "it has '{}' of tensor '{}', and such a node has none after such a step; resume from "
           "the states of the same job",
           list.name, tensor.name);
    }
    if (values.size() != tensor.elems()) {
      fail(ErrorCode::kInvalidArgument, "its '{}' of tensor '{}' has {} values, and that has {}",
           list.name, tensor.name, values.size(), tensor.elems());
    }
    if (!list.finite) continue;
    if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) continue;
    fail(ErrorCode::kInvalidArgument,
         "its '{}' of tensor '{}' holds a NaN or an infinity, which no residual does", list.name,
         tensor.name);
  }
}

void check_accumulated_is_whole(const Job& job, const NodeState& state) {
  for (std::size_t i = 0; i < job.tensors.size(); ++i) {
    if (!state.accumulated[i].empty() || job.tensors[i].elems() == 0) continue;
    fail(ErrorCode::kInvalidArgument,
         "it lacks 'accumulated' of tensor '{}', and step {} is within a round of {} local steps",
         job.tensors[i].name, state.step, job.local_steps);
  }
}

}  // namespace

void check_state(const Placement& placement, int rank, const NodeState& state) {
  const Job& job = placement.job;
  check_has_states(job, placement.options);
  const bool worker = rank < job.workers;
  const bool in_round = state.step % static_cast<std::uint64_t>(job.local_steps) != 0;
  const bool below_another =
      !placement.tree.empty() && placement.tree[static_cast<std::size_t>(rank)].parent >= 0;
  const bool sends_sums = worker || below_another;
  const bool has_server = job.servers == Job::kColocated && rank < placement.servers;
  with_context([&] { return fmt::format("the state of rank {}", rank); },
               [&] {
                 if (state.step >= kMostSteps) {
                   fail(ErrorCode::kInvalidArgument, "no job gets to step {}", state.step);
                 }
                 check_list(job, {state.pushed, "pushed", sends_sums, true});
                 check_list(job, {state.pulled, "pulled", !sends_sums || has_server, true});
                 check_list(job, {state.accumulated, "accumulated", worker && in_round, false});
                 if (worker && in_round) check_accumulated_is_whole(job, state);
               });
}

}  // namespace tersewire
