// What nodes of exchanges share of saving and resuming (state.h): residuals go from encoders into a
// NodeState, by tensor and element, and back.
//
// Why the states of all nodes fit together. The state after step s is that in which every encoder
// has encoded what belongs to the steps up to s, and nothing later. A worker is in it when it has
// pulled all of step s and pushed nothing of s + 1: whatever it had to encode for s had to be there
// before its own pull, or another's, could end. A server is in it between two messages: nobody
// pushes anything of s + 1 before pulling all of s, so that no tensor gets past s + 1 before all
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

// Values for each tensor of a job, or none.
using TensorValues = std::vector<std::vector<float>>;

// A part of a tensor, and the residual that an encoder keeps of it.
struct ResidualPart {
  std::size_t tensor;
  std::size_t begin;  // the part's, within the tensor
  std::span<float> residual;
};

// Those of whole tensors; `tensors` have an encoder each, or none.
template <typename Tensors>
std::vector<ResidualPart> residuals_of(const Tensors& tensors) {
  std::vector<ResidualPart> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].encoder) parts.push_back({i, 0, tensors[i].encoder->residual()});
  }
  return parts;
}

// What the parts hold; 0 where a tensor has other parts too.
TensorValues save_residuals(const Job& job, std::span<const ResidualPart> parts);

// Overwrites the residuals with what was saved of them. Requires that `saved` has an entry for each
// tensor, of its length or empty. Throws kInvalidArgument where a part is missing, or where there
// is something that is of no part; residuals are then undefined.
void load_residuals(const Job& job, const TensorValues& saved, std::span<const ResidualPart> parts);

// Throws kInvalidArgument for a job of which there is never a state of all nodes.
void check_has_states(const Job& job, const ExchangeOptions& options);

// A state after so many exchanges, which holds nothing yet.
NodeState empty_state(const Job& job, std::uint64_t exchanges);

inline std::uint64_t exchanges_in(const Job& job, const NodeState& state) {
  return state.step / static_cast<std::uint64_t>(job.local_steps);
}

// Whether servers save their state after this exchange.
inline bool is_saved_after(const Job& job, std::uint64_t exchange) {
  return job.state_steps > 0 &&
         exchange * static_cast<std::uint64_t>(job.local_steps) % job.state_steps == 0;
}

// Whether all that a server has an encoder for, tensors or parts of them, is past this step. Throws
// kFailedPrecondition where some is past the next one too.
template <typename Parts>
bool all_are_past(std::uint64_t step, const Parts& parts) {
  const auto still_in = [&](const auto& part) { return part.encoder && part.step <= step; };
  if (std::ranges::any_of(parts, still_in)) return false;
  const auto too_far = [&](const auto& part) { return part.encoder && part.step > step + 1; };
  if (std::ranges::any_of(parts, too_far)) {
    fail(ErrorCode::kFailedPrecondition,
         "step {} is to be saved, and some tensors were pushed in step {} before others in step "
         "{}; let every worker pull all tensors in a step, and then push them all",
         step, step + 1, step);
  }
  return true;
}

}  // namespace tersewire
