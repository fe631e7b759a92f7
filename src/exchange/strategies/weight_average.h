// Exchange weight-average (Oland & Raj, section 2): every worker follows its own gradients, and
// every K steps the workers exchange their encoded weights and average them.
//
// Synchronous: all send to all, and each averages what everyone's weights decode to, its own too,
// so that replicas are equal to the bit after it. Asynchronous: each sends to one other, all others
// in turn, and goes on; who receives weights takes the average of them and its own at its next
// pull.
//
// A worker keeps its weights beside the application's, which it sees in pull() alone.
#pragma once

#include <memory>

#include "placement.h"
#include "worker.h"

namespace tersewire {

// As make_communicator() says, for a job that has been checked. The caller ends the job where it
// throws.
std::unique_ptr<Worker> make_weight_average_worker(std::shared_ptr<const Placement> placement,
                                                   Transport& transport, const Update& update,
                                                   ThreadPool* pool);

}  // namespace tersewire
