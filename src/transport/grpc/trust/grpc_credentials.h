// How hub and nodes prove to each other who they are.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "tersewire/grpc_network.h"
#include "tersewire/job_certificates.h"

namespace tersewire {

// Whether "HOST:PORT" names this machine to itself. Throws as host_and_port() does.
bool is_loopback(const std::string& address);

// Throws kInvalidArgument where `address` is none, or not on loopback, with nothing that protects
// what goes there.
void check_protected(const std::string& address, const GrpcSecurity& security);

// The same where nodes listen for each other there, of which the hub tells them; throws as well
// where it is no address at which they can reach this one.
void check_direct(const std::string& address, const GrpcSecurity& security);

// Throw kNotFound for files that are not there.
// Who connects must have a certificate of the job's authority. Files that are renewed while
// somebody listens count within seconds.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const GrpcSecurity& security);
// Sets in `arguments` whom the node expects at the other end: a peer, or the hub.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(
    const GrpcSecurity& security, grpc::ChannelArguments& arguments,
    const std::optional<Identity>& peer = std::nullopt);

// A connection of its own to the hub, or directly to a peer, once it is used.
std::shared_ptr<grpc::Channel> channel_to(const std::string& address, const GrpcSecurity& security,
                                          const std::optional<Identity>& peer = std::nullopt);

// The job that the certificates are of; empty in plaintext.
std::string job_of(const GrpcSecurity& security);
// Throws kFailedPrecondition where a certificate has expired or is not valid yet, which at the
// other end is only a connection that fails.
void check_valid_now(const GrpcSecurity& security);
// The end of a sentence on a hub that could not be reached: what to look at, by what gRPC says and
// what a handshake shows. Takes a few seconds at most.
std::string what_to_check(const std::string& hub, const std::string& trouble,
                          const GrpcSecurity& security);
// A sentence for the hub's log, where its certificate expires soon.
std::optional<std::string> expiry_warning(const GrpcSecurity& security);
// Throws kInvalidArgument where the certificates are not the hub's.
void check_is_hub(const GrpcSecurity& security);

// In PEM; empty in plaintext.
std::string certificate_of(const grpc::AuthContext& peer);

// As sentences name a node: "rank 3", or a name in quotes.
std::string shown(const Identity& identity);

// Why who is at the other end of a hub's stream may not speak for this rank or name of a job, or,
// where neither is there, for any; nothing where it may, as everyone does in plaintext (job empty).
std::optional<std::string> objection(const grpc::AuthContext& peer, const Identity& claimed);

}  // namespace tersewire
