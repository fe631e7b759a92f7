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

// Whether "HOST:PORT" names this machine to itself.
bool is_loopback(const std::string& address);

// Throws kInvalidArgument where `address` is not on loopback and nothing protects what goes there.
void check_protected(const std::string& address, const GrpcSecurity& security);

// Throw kNotFound for files that are not there.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const GrpcSecurity& security);
// Sets in `arguments` whom the node expects at the other end.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const GrpcSecurity& security,
                                                              grpc::ChannelArguments& arguments);

// A connection to the hub of its own, once it is used.
std::shared_ptr<grpc::Channel> channel_to(const std::string& hub, const GrpcSecurity& security);

// The job that the certificates are of; empty in plaintext.
std::string job_of(const GrpcSecurity& security);

// In PEM; empty in plaintext.
std::string certificate_of(const grpc::AuthContext& peer);

// Why who is at the other end of a hub's stream may not speak for this rank or name of a job, or,
// where neither is there, for any; nothing where it may, as everyone does in plaintext (job empty).
std::optional<std::string> objection(const grpc::AuthContext& peer, const Identity& claimed);

}  // namespace tersewire
