// Stands in for the transport grpc in builds without gRPC.
#include "errors.h"
#include "tersewire/grpc_network.h"
#include "tersewire/job_certificates.h"

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
void GrpcHub::abort(const std::string& /*reason*/) { refuse(); }
std::vector<std::string> GrpcHub::take_events() { refuse(); }

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

KeyAndCertificate make_authority(const std::string& /*job*/, std::chrono::hours /*valid*/) {
  refuse();
}
KeyAndRequest make_request() { refuse(); }
std::string make_request(const std::string& /*key*/) { refuse(); }
std::string certify(const KeyAndCertificate& /*authority*/, const std::string& /*request*/,
                    const Identity& /*identity*/, std::chrono::seconds /*valid*/,
                    std::chrono::seconds /*begins_ago*/) {
  refuse();
}
std::string job_of_authority(const std::string& /*certificate*/) { refuse(); }
Identity check_certificate(const std::string& /*certificate*/, const std::string& /*key*/,
                           const std::string& /*authority*/) {
  refuse();
}

}  // namespace tersewire
