// Exchange all-gather (AdaComp, section "Methodology": peer to peer): every worker sends its
// encoded gradient to every other and averages all of them, its own decoded one included, so that
// all come to the same bits. There is no server; residuals live at the workers.
#pragma once

#include <memory>

#include "placement.h"
#include "worker.h"

namespace tersewire {

// As make_communicator() says, for a job that has been checked. The caller ends the job where it
// throws.
std::unique_ptr<Worker> make_all_gather_worker(std::shared_ptr<const Placement> placement,
                                               Transport& transport, const Update& update,
                                               ThreadPool* pool);

}  // namespace tersewire
