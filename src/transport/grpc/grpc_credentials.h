// How hub and nodes prove to each other who they are.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "tersewire/grpc_network.h"

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

// The job that the certificates are of; empty in plaintext.
std::string job_of(const GrpcSecurity& security);

// Why who is at the other end of a hub's stream may not speak for this rank of a job; nothing where
// it may, as everyone does in plaintext.
std::optional<std::string> objection(const grpc::AuthContext& peer, std::uint32_t rank,
                                     const std::string& job);

}  // namespace tersewire
