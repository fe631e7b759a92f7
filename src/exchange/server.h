// What runs on a node beside the workers, or beside the worker of its node (colocated.h).
#pragma once

#include <span>
#include <vector>

#include "node.h"
#include "node_state.h"
#include "tersewire/communicator.h"
#include "tersewire/state.h"

namespace tersewire {

class Server {
 public:
  virtual ~Server() = default;

  // Before run(): goes on after a state whose lists have been checked. Throws kInvalidArgument
  // where its residuals are not this server's.
  virtual void resume(const NodeState& state) = 0;

  // What it would lose in a restart after this exchange: while nothing of the next can have been
  // encoded.
  [[nodiscard]] virtual NodeState state(std::uint64_t exchange) = 0;

  // What its encoders keep, at such a moment.
  [[nodiscard]] virtual std::vector<ResidualRun> residual_runs() const = 0;

  // Until every worker is done; `save` as run_server() says. The caller ends the job where it
  // throws.
  virtual Counters run(const SaveState& save) = 0;
  // In its place, where the node's worker has nobody else to wait for: messages that came together.
  virtual void take(std::span<const Received> received) = 0;
};

// How long a server waits. The worker on a colocated one's node has limits of its own: for as long
// as it is not done and pushes nothing, its server has nothing to wait for.
inline WaitLimits server_wait_limits(const Job& job, int rank, const std::vector<bool>& done) {
  WaitLimits limits = job.wait_limits();
  if (job.servers == Job::kColocated && !done[static_cast<std::size_t>(rank - job.workers)]) {
    limits.progress_limit = std::chrono::milliseconds::max();
  }
  return limits;
}

// Ends the job where what a server does fails.
template <typename Task>
decltype(auto) as_server(Transport& transport, Task&& task) {
  return ending_the_job_on_failure(transport, fmt::format("server {}", transport.rank()),
                                   std::forward<Task>(task));
}

inline Counters serve(Server& server, Transport& transport, const SaveState& save) {
  return as_server(transport, [&] { return server.run(save); });
}

}  // namespace tersewire
