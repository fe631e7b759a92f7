// Exchange ring (INCEPTIONN, section IV, Algorithm 1 with the indices of its own example):
// gradients are cut into as many blocks as there are workers. In the first phase each block travels
// once around the ring and every worker adds its part: it decodes what came, adds, and encodes the
// sum. In the second phase the worker that completed a block encodes it once; everyone forwards
// those bytes unchanged and everyone, their maker too, takes what they decode to. There is no
// server.
//
// Exchange hierarchical-ring (Fig. 1b, 1c): a ring in every group of workers. Between the two
// phases those who hold the same block of their groups add it up, in a ring of their own or through
// a server (ring_aggregator.h). One group is the plain ring.
#pragma once

#include <memory>

#include "placement.h"
#include "worker.h"

namespace tersewire {

// As make_communicator() says, for a job that has been checked. The caller ends the job where it
// throws.
std::unique_ptr<Worker> make_ring_worker(std::shared_ptr<const Placement> placement,
                                         Transport& transport, const Update& update,
                                         ThreadPool* pool);

}  // namespace tersewire
