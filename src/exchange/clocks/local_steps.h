// Infrequent communication (3LC, section 5.1, "2 local steps"): a communicator that adds up the
// gradients of K steps and exchanges their mean through another one, which sees one step in K.
#pragma once

#include <memory>

#include "placement.h"
#include "tersewire/communicator.h"

namespace tersewire {

// Requires local_steps >= 1. Costs a copy of the gradients, and a pass over them per step.
// `network` is that of the exchange, which has resumed after the same state where there is one; its
// lists have been checked.
std::unique_ptr<Communicator> with_local_steps(std::unique_ptr<Communicator> exchange,
                                               std::shared_ptr<const Placement> placement,
                                               Transport& network, const NodeState* resume);

}  // namespace tersewire
