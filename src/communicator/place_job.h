// From a job, which names what it wants, to a placement, in which everything is chosen.
#pragma once

#include <memory>
#include <vector>

#include "placement.h"
#include "tersewire/communicator.h"

namespace tersewire {

// Throws kInvalidArgument for a job that makes no sense.
std::shared_ptr<const Placement> place_job(const Job& job);

// How the job's tensors are cut, and which server owns each part; none where no server owns a whole
// one.
PartTable cut_parts(const Job& job);

}  // namespace tersewire
