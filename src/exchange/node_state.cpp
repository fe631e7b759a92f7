#include "node_state.h"

namespace tersewire {
namespace {

std::size_t values_other_than_zero(std::span<const float> values) {
  return static_cast<std::size_t>(
      std::ranges::count_if(values, [](float value) { return value != 0; }));
}

void load_run(const std::string& name, const std::vector<float>& saved, const ResidualRun& run) {
  if (saved.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the state has no residual of {}, whose codec keeps one; resume with the codecs and from "
         "the states of the same job",
         name);
  }
  std::ranges::copy(std::span(saved).subspan(run.begin, run.residual.size()), run.residual.begin());
}

}  // namespace

PartValues save_residuals(const Placement& placement, std::span<const ResidualRun> runs) {
  PartValues saved(placement.parts.size());
  for (const ResidualRun& run : runs) {
    if (run.residual.empty()) continue;
    std::vector<float>& values = saved[run.part];
    values.resize(placement.parts[run.part].elems);
    std::ranges::copy(run.residual, values.begin() + static_cast<std::ptrdiff_t>(run.begin));
  }
  return saved;
}

void load_residuals(const Placement& placement, const PartValues& saved,
                    std::span<const ResidualRun> runs) {
  std::vector<bool> kept(saved.size(), false);
  std::vector<std::size_t> loaded(saved.size(), 0);  // values other than 0
  for (const ResidualRun& run : runs) {
    if (run.residual.empty()) continue;
    load_run(placement.name(run.part), saved[run.part], run);
    kept[run.part] = true;
    loaded[run.part] += values_other_than_zero(run.residual);
  }
  for (std::size_t part = 0; part < saved.size(); ++part) {
    const bool fits =
        kept[part] ? values_other_than_zero(saved[part]) == loaded[part] : saved[part].empty();
    if (fits) continue;
    fail(ErrorCode::kInvalidArgument,
         "the state has a residual of {} that no codec of this node keeps; resume with the codecs "
         "and from the states of the same job",
         placement.name(part));
  }
}

std::vector<std::vector<float>> by_tensor(const Placement& placement, const PartValues& values) {
  std::vector<std::vector<float>> tensors(placement.job.tensors.size());
  for (const Part& part : placement.parts) {
    if (values[part.number].empty()) continue;
    std::vector<float>& tensor = tensors[part.tensor];
    tensor.resize(placement.job.tensors[part.tensor].elems());
    std::ranges::copy(values[part.number],
                      tensor.begin() + static_cast<std::ptrdiff_t>(part.begin));
  }
  return tensors;
}

void KeptResiduals::keep(std::span<const ResidualRun> runs) {
  values_.clear();
  for (const ResidualRun& run : runs) {
    values_.insert(values_.end(), run.residual.begin(), run.residual.end());
  }
}

void KeptResiduals::restore(const Placement& placement, std::size_t tensor,
                            std::span<const ResidualRun> runs) const {
  auto kept = values_.begin();
  for (const ResidualRun& run : runs) {
    const auto end = kept + static_cast<std::ptrdiff_t>(run.residual.size());
    if (placement.parts[run.part].tensor == tensor && !placement.follows[run.part]) {
      std::copy(kept, end, run.residual.begin());
    }
    kept = end;
  }
}

void check_has_states(const Job& job, const ExchangeOptions& options) {
  // With staleness all workers meet in the steps that are saved.
  const bool skips = job.backup_workers > 0 && job.in_lock_step();
  if (!skips && !options.average_asynchronous) return;
  fail(ErrorCode::kInvalidArgument,
       "{} has no state of all nodes after the same step, since workers do not wait for each "
       "other; use {}, or save no states",
       skips ? "a job with backup workers" : "asynchronous averaging",
       skips ? "0 backup workers, or a staleness beside them" : "mode=synchronous");
}

std::uint64_t exchanges_in(const Job& job, const NodeState& state) {
  if (!job.ladder || !job.ladder->last_step) return state.step / job.steps_a_round();
  std::uint64_t exchange = 0;
  while (last_step_of(job, exchange) < state.step) ++exchange;
  return exchange;
}

NodeState empty_state(const Placement& placement, int rank, std::uint64_t exchanges) {
  const PartValues nothing(placement.parts.size());
  return {.step = last_step_of(placement.job, exchanges),
          .rank = rank,
          .workers = placement.job.workers,
          .servers = server_nodes(placement),
          .pushed = nothing,
          .pulled = nothing,
          .accumulated = nothing,
          .shared = nothing,
          .followed = nothing};
}

}  // namespace tersewire
