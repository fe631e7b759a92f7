// Stands in for the transport grpc in builds without gRPC.
#include "errors.h"
#include "tersewire/grpc_members.h"
#include "tersewire/job_certificates.h"

namespace tersewire {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::kUnimplemented,
       "this build has no transport 'grpc'; install gRPC and OpenSSL with their headers ('make "
       "deps' does), run CMake again and build");
}

}  // namespace

class GrpcHubServer {};

GrpcHub::GrpcHub(const std::string& /*address*/, int /*nodes*/, const GrpcSecurity& /*security*/) {
  refuse();
}
GrpcHub::GrpcHub(const std::string& /*address*/, int /*nodes*/, HubJournal /*journal*/,
                 const GrpcSecurity& /*security*/) {
  refuse();
}
GrpcHub::GrpcHub(const std::string& /*address*/, const MembershipLimits& /*limits*/,
                 HubJournal /*journal*/, const GrpcSecurity& /*security*/) {
  refuse();
}
GrpcHub::~GrpcHub() = default;
std::string GrpcHub::address() const { refuse(); }
bool GrpcHub::wait(std::chrono::milliseconds /*timeout*/) const { refuse(); }
std::string GrpcHub::aborted() const { refuse(); }
void GrpcHub::abort(const std::string& /*reason*/) { refuse(); }
std::vector<std::string> GrpcHub::take_events() { refuse(); }
MemberList GrpcHub::status() const { refuse(); }

std::unique_ptr<Transport> join_grpc_network(const std::string& /*hub*/, int /*rank*/,
                                             int /*nodes*/, const GrpcSecurity& /*security*/,
                                             const WaitLimits& /*limits*/,
                                             const std::string& /*direct*/) {
  refuse();
}

class GrpcMember::Talk {};
GrpcMember::GrpcMember(Settings /*settings*/) { refuse(); }
GrpcMember::~GrpcMember() = default;
std::uint64_t GrpcMember::incarnation() const { refuse(); }
MemberList GrpcMember::await(std::uint32_t /*after*/) { refuse(); }
MemberList GrpcMember::await_end(std::uint32_t /*generation*/) { refuse(); }
MemberList GrpcMember::look() const { refuse(); }
void GrpcMember::be_away(bool /*away*/) { refuse(); }
MemberList GrpcMember::await_settled(std::uint32_t /*generation*/) { refuse(); }
std::unique_ptr<Transport> GrpcMember::join(const MemberList& /*list*/) { refuse(); }
void GrpcMember::holds(std::vector<KeptState> /*states*/) { refuse(); }
void GrpcMember::leave() { refuse(); }
void GrpcMember::end(std::uint32_t /*generation*/, const std::string& /*reason*/) { refuse(); }
void GrpcMember::finish() { refuse(); }
void GrpcMember::give_up(const std::string& /*reason*/) { refuse(); }

MemberList look_at_hub(const std::string& /*hub*/, const GrpcSecurity& /*security*/,
                       std::chrono::milliseconds /*patience*/) {
  refuse();
}
void tell_done(const std::string& /*hub*/, const std::string& /*name*/,
               const GrpcSecurity& /*security*/, std::chrono::milliseconds /*patience*/) {
  refuse();
}
std::string certified_name(const GrpcSecurity& /*security*/) { refuse(); }

int certified_rank(const GrpcSecurity& /*security*/) { refuse(); }

std::vector<std::unique_ptr<Transport>> make_grpc_network(int /*nodes*/,
                                                          const WaitLimits& /*limits*/) {
  refuse();
}

KeyAndCertificate make_authority(const std::string& /*job*/, std::chrono::hours /*valid*/) {
  refuse();
}
Validity validity_of(const std::string& /*certificate*/) { refuse(); }
KeyAndRequest make_request() { refuse(); }
std::string make_request(const std::string& /*key*/) { refuse(); }
void check_key(const std::string& /*key*/) { refuse(); }
std::string certify(const KeyAndCertificate& /*authority*/, const std::string& /*request*/,
                    const Identity& /*identity*/, std::chrono::seconds /*valid*/,
                    std::chrono::seconds /*begins_ago*/) {
  refuse();
}
std::string make_token(const KeyAndCertificate& /*authority*/, const Identity& /*identity*/,
                       std::chrono::seconds /*valid*/) {
  refuse();
}
std::string sign_request(const std::string& /*request*/, const std::string& /*token*/) { refuse(); }
bool is_signed_request(const std::string& /*request*/) { refuse(); }
std::string certify_by_token(const KeyAndCertificate& /*authority*/, const std::string& /*revoked*/,
                             const std::string& /*request*/, std::chrono::seconds /*valid*/) {
  refuse();
}
void check_authority(const std::string& /*token*/, const std::string& /*authority*/) { refuse(); }
std::string make_revocation(const KeyAndCertificate& /*authority*/, const std::string& /*list*/,
                            const Identity& /*identity*/) {
  refuse();
}
bool is_revocation(const std::string& /*text*/, const std::string& /*authority*/) { refuse(); }
bool keeps_revoked(const std::string& /*list*/, const std::string& /*before*/,
                   const std::string& /*authority*/) {
  refuse();
}
std::string job_of_authority(const std::string& /*certificate*/) { refuse(); }
Identity check_certificate(const std::string& /*certificate*/, const std::string& /*key*/,
                           const std::string& /*authority*/) {
  refuse();
}

}  // namespace tersewire
