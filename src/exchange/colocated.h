// Servers without nodes of their own: every worker's node also serves a shard of the tensors, in a
// thread of its own, so that there is no separate machine and no hot link. To the exchange they are
// workers 0 to W - 1 and servers W to W + S - 1 as ever; the server of rank W + i lives on node i.
#pragma once

#include <functional>
#include <memory>

#include "placement.h"
#include "server.h"
#include "tersewire/communicator.h"

namespace tersewire {

// What a node of such a job runs: a worker over its half of the network, and where the node has a
// server, that over the other half.
struct ColocatedTasks {
  std::function<std::unique_ptr<Communicator>(Transport&)> make_worker;
  std::function<std::unique_ptr<Server>(Transport&)> make_server;
};

// The worker of node network.rank() among network.size(), of which the first have a server each.
// finish() returns when the node's server has ended. Its counters hold what the node sends (pushed)
// and receives (pulled), its server's messages included, and nothing that stays on the node; of
// time, the worker's alone. `network` must outlive it.
std::unique_ptr<Communicator> make_colocated_worker(Transport& network,
                                                    std::shared_ptr<const Placement> placement,
                                                    const ColocatedTasks& tasks);

}  // namespace tersewire
