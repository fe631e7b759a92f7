// Holds a state against the job and the node that it is said to be of.
#pragma once

#include "node_state.h"
#include "placement.h"
#include "tersewire/state.h"

namespace tersewire {

// Throws kInvalidArgument where the state cannot be one of this rank of the network. Whether each
// residual is there that an encoder keeps, load_residuals() finds out.
void check_state(const Placement& placement, int rank, const NodeState& state);

}  // namespace tersewire
