// Exchange parameter-server (3LC, sections 2 and 3): workers push gradients, the server that owns a
// tensor averages them, updates the model and sends the model delta, compressed once, to every
// worker. Residuals live at workers for pushes and at servers for pulls.
//
// Exchange gradient-server (TernGrad, section 3.1, "parameter localization") is the same with the
// model at the workers: the server's delta is the mean gradient itself, and each worker turns it
// into a change of its own parameters. With scaler sharing all workers encode under the same
// scalers, so that a server adds up ternary digits as integers and sends their sums as `levels`.
//
// Servers that do not wait for the slowest worker (Job::staleness) are stale_server.h's.
//
// Exchange aggregator-tree (INCEPTIONN, figures 1a and 2) is parameter-server with aggregators in
// between: each averages what its children push, encodes that again for its parent, and passes on
// what comes back. Where INCEPTIONN sends weights down, the root sends model deltas: as many
// values, which can be compressed.
#pragma once

#include <memory>

#include "placement.h"
#include "server.h"
#include "worker.h"

namespace tersewire {

// Both as make_communicator() and run_server() say, for a job that has been checked. The caller
// ends the job where they throw. A worker without an update adds what it pulls to its parameters,
// and a server without one sends the mean; only the root of a tree calls `update`.
std::unique_ptr<Worker> make_parameter_server_worker(std::shared_ptr<const Placement> placement,
                                                     Transport& transport, const Update& update,
                                                     ThreadPool* pool);
std::unique_ptr<Server> make_parameter_server(std::shared_ptr<const Placement> placement,
                                              Transport& transport, const Update& update,
                                              ThreadPool* pool);

}  // namespace tersewire
