// How processes and threads join the network of a hub's job.
#include "tersewire/grpc_network.h"

#include <future>

#include "errors.h"
#include "grpc_credentials.h"
#include "grpc_end.h"
#include "tersewire/counted.h"

namespace tersewire {
std::unique_ptr<Transport> join_grpc_network(const std::string& hub, int rank, int nodes,
                                             const GrpcSecurity& security, const WaitLimits& limits,
                                             const std::string& direct) {
  if (nodes < 1) {
    fail(ErrorCode::kInvalidArgument, "a network of {} nodes carries nothing; use at least 1",
         nodes);
  }
  if (rank < 0 || rank >= nodes) {
    fail(ErrorCode::kInvalidArgument, "there is no rank {} in a job of {}; use {}", rank,
         counted(nodes, "node"), nodes == 1 ? "0" : fmt::format("0 to {}", nodes - 1));
  }
  check_protected(hub, security);
  if (!direct.empty()) check_direct(direct, security);
  check_valid_now(security);
  keep_grpc_quiet();
  grpc::ChannelArguments unused;
  channel_credentials(security, unused);  // throws here rather than in the end's thread
  return std::make_unique<GrpcEnd>(hub, GrpcNode{.rank = rank, .nodes = nodes, .direct = direct},
                                   security, limits);
}

std::vector<std::unique_ptr<Transport>> make_grpc_network(int nodes, const WaitLimits& limits) {
  keep_grpc_quiet();
  const auto hub = std::make_shared<GrpcHub>("127.0.0.1:0", nodes);
  // Each waits for all.
  std::vector<std::future<std::unique_ptr<Transport>>> joining;
  for (int rank = 0; rank < nodes; ++rank) {
    joining.push_back(std::async(std::launch::async, [&, rank]() -> std::unique_ptr<Transport> {
      return std::make_unique<GrpcEnd>(hub->address(), GrpcNode{.rank = rank, .nodes = nodes},
                                       GrpcSecurity(), limits, hub);
    }));
  }
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joining) ends.push_back(end.get());
  return ends;
}

}  // namespace tersewire
