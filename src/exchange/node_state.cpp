#include "node_state.h"

namespace tersewire {
namespace {

std::size_t values_other_than_zero(std::span<const float> values) {
  return static_cast<std::size_t>(
      std::ranges::count_if(values, [](float value) { return value != 0; }));
}

void load_part(const TensorInfo& tensor, const std::vector<float>& saved,
               const ResidualPart& part) {
  if (saved.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the state has no residual of tensor '{}', and its codec keeps one here; resume with the "
         "codecs and from the states of the same job",
         tensor.name);
  }
  std::ranges::copy(std::span(saved).subspan(part.begin, part.residual.size()),
                    part.residual.begin());
}

}  // namespace

TensorValues save_residuals(const Job& job, std::span<const ResidualPart> parts) {
  TensorValues saved(job.tensors.size());
  for (const ResidualPart& part : parts) {
    if (part.residual.empty()) continue;
    std::vector<float>& values = saved[part.tensor];
    values.resize(job.tensors[part.tensor].elems());
    std::ranges::copy(part.residual, values.begin() + static_cast<std::ptrdiff_t>(part.begin));
  }
  return saved;
}

void load_residuals(const Job& job, const TensorValues& saved,
                    std::span<const ResidualPart> parts) {
  std::vector<bool> kept(saved.size(), false);
  std::vector<std::size_t> loaded(saved.size(), 0);  // values other than 0
  for (const ResidualPart& part : parts) {
    if (part.residual.empty()) continue;
    load_part(job.tensors[part.tensor], saved[part.tensor], part);
    kept[part.tensor] = true;
    loaded[part.tensor] += values_other_than_zero(part.residual);
  }
  for (std::size_t tensor = 0; tensor < saved.size(); ++tensor) {
    const bool fits = kept[tensor] ? values_other_than_zero(saved[tensor]) == loaded[tensor]
                                   : saved[tensor].empty();
    if (fits) continue;
    fail(ErrorCode::kInvalidArgument,
         "the state has a residual of tensor '{}' that nobody keeps here; resume with the codecs "
         "and from the states of the same job",
         job.tensors[tensor].name);
  }
}

void check_has_states(const Job& job, const ExchangeOptions& options) {
  if (job.backup_workers == 0 && !options.average_asynchronous) return;
  fail(ErrorCode::kInvalidArgument,
       "{} has no state of all nodes after the same step, since workers do not wait for each "
       "other; use {}, or save no states",
       job.backup_workers > 0 ? "a job with backup workers" : "asynchronous averaging",
       job.backup_workers > 0 ? "0 backup workers" : "mode=synchronous");
}

NodeState empty_state(const Job& job, std::uint64_t exchanges) {
  const TensorValues nothing(job.tensors.size());
  return {.step = exchanges * static_cast<std::uint64_t>(job.local_steps),
          .pushed = nothing,
          .pulled = nothing,
          .accumulated = nothing};
}

}  // namespace tersewire
