// Exchanges parameter-server and gradient-server whose servers do not wait for the slowest worker
// (Job::staleness; docs/exchanges.md, "Servers that do not wait").
//
// A bucket's parts change together: the model has *versions* of them, each with the number of the
// step that made it. Of each bucket
//   - every push gets one answer: the worker is brought to the last version, and computes the step
//     after the last that it knows of;
//   - a push of a step that no version has reached yet makes the next version, out of all pushes
//     that no version has, in the order of ranks; with Job::backup_workers it takes those of all
//     workers but so many. A push of an older step is late: it is in the next version, and is
//     answered with the last, unless the next is made at once;
//   - no version s is made while a worker computes from one before s - staleness.
//
// Workers at the same version are a *group*: they have the same replica to the bit, and pull the
// same bytes (3LC, section 3). The residual of the pulls is that of the group at the last version;
// what another group lacks beside it is the deltas since its version, which are kept as they were
// sent for as long as somebody is behind them. A group splits where one of its workers is answered
// and another still computes; it joins the next when it has pulled those deltas, and has lost
// nothing: it has added the same bytes in the same order.
#pragma once

#include <memory>

#include "placement.h"
#include "server.h"
#include "worker.h"

namespace tersewire {

// As make_parameter_server_worker() and make_parameter_server(), for a job that is not in
// lock-step.
std::unique_ptr<Worker> make_stale_worker(std::shared_ptr<const Placement> placement,
                                          Transport& transport, const Update& update,
                                          ThreadPool* pool);
std::unique_ptr<Server> make_stale_server(std::shared_ptr<const Placement> placement,
                                          Transport& transport, const Update& update,
                                          ThreadPool* pool);

}  // namespace tersewire
