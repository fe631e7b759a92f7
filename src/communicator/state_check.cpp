#include "state_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "errors.h"
#include "tersewire/counted.h"

namespace tersewire {
namespace {

// "rank 1 of 4 workers and 2 server nodes"
std::string node_text(int rank, int workers, int servers) {
  std::string text = fmt::format("rank {} of {}", rank, counted(workers, "worker"));
  if (servers > 0) text += " and " + counted(servers, "server node");
  return text;
}

// Another's may have as many values.
void check_owner(const Placement& placement, int rank, const NodeState& state) {
  if (state.rank < 0) {
    fail(
        ErrorCode::kInvalidArgument,
        "it does not say of which node it is; give what state() returned or a server saved, or set "
        "its rank, workers and servers");
  }
  const int servers = server_nodes(placement);
  const int workers = placement.job.workers;
  if (state.rank == rank && state.workers == workers && state.servers == servers) return;
  fail(ErrorCode::kInvalidArgument,
       "it is that of {}, and this is {}; give every node its own state, or redistribute() them",
       node_text(state.rank, state.workers, state.servers), node_text(rank, workers, servers));
}

struct List {
  const PartValues& values;
  const char* name;
  bool kept;    // whether this node may have some
  bool finite;  // whether they must be
};

void check_list(const Placement& placement, const List& list) {
  if (list.values.size() != placement.parts.size()) {
    fail(ErrorCode::kInvalidArgument,
         "its list '{}' is for {} parts of tensors, and the job has {}; resume with tensors cut as "
         "before",
         list.name, list.values.size(), placement.parts.size());
  }
  for (std::size_t i = 0; i < list.values.size(); ++i) {
    const std::vector<float>& values = list.values[i];
    if (values.empty()) continue;
    if (!list.kept) {
      fail(ErrorCode::kInvalidArgument,
           "it has '{}' of {}, which this node does not keep after such a step; resume from the "
           "states of the same job",
           list.name, placement.name(i));
    }
    if (values.size() != placement.parts[i].elems) {
      fail(ErrorCode::kInvalidArgument,
           "its '{}' of {} has {} values, not {}; resume with tensors cut as before", list.name,
           placement.name(i), values.size(), placement.parts[i].elems);
    }
    if (!list.finite) continue;
    if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) continue;
    fail(ErrorCode::kInvalidArgument,
         "its '{}' of {} holds a NaN or an infinity, which no node keeps there; resume from an "
         "earlier state",
         list.name, placement.name(i));
  }
}

// What was sent so far, negated, would be taken for something that is owed.
void check_follows(const Placement& placement, const PartValues& followed) {
  for (std::size_t i = 0; i < followed.size(); ++i) {
    if (followed[i].empty() || placement.follows[i]) continue;
    fail(ErrorCode::kInvalidArgument,
         "it has 'followed' of {}, whose codec sends no differences; resume with the codecs of the "
         "same job",
         placement.name(i));
  }
}

void check_is_whole(const Placement& placement, const List& list, const std::string& why) {
  for (const Part& part : placement.parts) {
    if (!list.values[part.number].empty() || part.elems == 0) continue;
    fail(ErrorCode::kInvalidArgument, "it lacks '{}' of {}, and {}", list.name,
         placement.name(part.number), why);
  }
}

}  // namespace

void check_state(const Placement& placement, int rank, const NodeState& state) {
  const Job& job = placement.job;
  check_has_states(job, placement.options);
  const bool worker = rank < job.workers;
  const bool in_round = state.step % job.steps_a_round() != 0;
  const bool below_another =
      !placement.tree.empty() && placement.tree[static_cast<std::size_t>(rank)].parent >= 0;
  const bool sends_sums = worker || below_another;
  const bool has_server = job.servers == Job::kColocated && rank < placement.servers;
  with_context(
      [&] { return fmt::format("the state of rank {}", rank); },
      [&] {
        check_owner(placement, rank, state);
        if (state.step >= kMostSteps) {
          fail(ErrorCode::kInvalidArgument,
               "no job can reach step {}; resume from the states of the same job", state.step);
        }
        if (in_round && job.local_updates > 0) {
          fail(ErrorCode::kInvalidArgument,
               "step {} is within a round of {} local updates, where no state is saved; resume "
               "from the states of the same job",
               state.step, job.local_updates);
        }
        check_list(placement, {state.pushed, "pushed", sends_sums, true});
        check_list(placement, {state.pulled, "pulled", !sends_sums || has_server, true});
        const List accumulated{state.accumulated, "accumulated", worker && in_round, false};
        check_list(placement, accumulated);
        if (accumulated.kept) {
          check_is_whole(placement, accumulated,
                         fmt::format("step {} is within a round of {} local steps", state.step,
                                     job.local_steps));
        }
        const bool averages = worker ? placement.servers == 0 || has_server : !below_another;
        check_list(placement, {state.followed, "followed", averages, true});
        check_follows(placement, state.followed);
        const List shared{state.shared, "shared", worker && job.keeps_shared_copy(), false};
        check_list(placement, shared);
        if (shared.kept) {
          check_is_whole(placement, shared,
                         "with fragments or a delay workers' own parameters differ from it; "
                         "resume from the states of the same job");
        }
      });
}

}  // namespace tersewire
