// The servers of a hierarchical-ring with top=tree (INCEPTIONN, Fig. 1b): the aggregator above the
// groups' rings. Each adds up its blocks over the groups, in their order, encodes the sum once and
// sends the same bytes to the worker of each group that sent the block. Residuals of sums live
// here.
#pragma once

#include <memory>

#include "placement.h"
#include "server.h"

namespace tersewire {

// As run_server() says, for a job that has been checked; the update is not called. The caller ends
// the job where it throws.
std::unique_ptr<Server> make_ring_aggregator(std::shared_ptr<const Placement> placement,
                                             Transport& transport, const Update& update,
                                             ThreadPool* pool);

}  // namespace tersewire
