// Stands in for the transport grpc in builds without gRPC.
#include "errors.h"
#include "tersewire/grpc_network.h"

namespace tersewire {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::kUnimplemented,
       "this build has no transport 'grpc'; build with -DTERSEWIRE_GRPC=ON, which needs gRPC and "
       "OpenSSL");
}

}  // namespace

class GrpcHubServer {};

GrpcHub::GrpcHub(const std::string& /*address*/, int /*nodes*/, const GrpcSecurity& /*security*/) {
  refuse();
}
GrpcHub::~GrpcHub() = default;
std::string GrpcHub::address() const { refuse(); }
bool GrpcHub::wait(std::chrono::milliseconds /*timeout*/) const { refuse(); }
std::string GrpcHub::aborted() const { refuse(); }

std::unique_ptr<Transport> join_grpc_network(const std::string& /*hub*/, int /*rank*/,
                                             int /*nodes*/, const GrpcSecurity& /*security*/,
                                             const WaitLimits& /*limits*/) {
  refuse();
}

int certified_rank(const GrpcSecurity& /*security*/) { refuse(); }

std::vector<std::unique_ptr<Transport>> make_grpc_network(int /*nodes*/,
                                                          const WaitLimits& /*limits*/) {
  refuse();
}

}  // namespace tersewire
