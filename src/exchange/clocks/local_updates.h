// Local updates (local SGD; DiLoCo, Douillard et al. 2023, Algorithm 1): a communicator whose
// workers change their parameters by themselves for K steps, and then exchange how far they came
// from the model that they share, as a gradient of it, through another one.
#pragma once

#include <memory>

#include "placement.h"
#include "tersewire/communicator.h"

namespace tersewire {

// Requires local_updates >= 1. Costs a copy of the model, with a delay two, and two passes over it
// a round. `network` is that of the exchange, which has resumed after the same state where there is
// one; its lists have been checked.
std::unique_ptr<Communicator> with_local_updates(std::unique_ptr<Communicator> exchange,
                                                 std::shared_ptr<const Placement> placement,
                                                 Transport& network, const NodeState* resume);

}  // namespace tersewire
