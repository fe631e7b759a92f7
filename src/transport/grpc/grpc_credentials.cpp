#include "grpc_credentials.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "certificates.h"
#include "errors.h"

namespace tersewire {
namespace {

struct Files {
  std::string certificate;
  std::string key;
  std::string authority;
  Identity identity;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    fail(ErrorCode::kNotFound,
         "'{}' cannot be read; name the directory of this node's key.pem, certificate.pem and "
         "authority.pem",
         path);
  }
  return std::move(text).str();
}

Files read_files(const std::string& directory) {
  const std::string certificate = directory + "/certificate.pem";
  Files files{.certificate = read_file(certificate),
              .key = read_file(directory + "/key.pem"),
              .authority = read_file(directory + "/authority.pem"),
              .identity = {}};
  files.identity = identity_of(files.certificate, certificate);
  return files;
}

}  // namespace

bool is_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

void check_protected(const std::string& address, const GrpcSecurity& security) {
  if (address.rfind(':') == std::string::npos) {
    fail(ErrorCode::kInvalidArgument, "'{}' is no address; write HOST:PORT", address);
  }
  if (!security.certificates.empty() || security.insecure || is_loopback(address)) return;
  fail(ErrorCode::kInvalidArgument,
       "'{}' is not on this machine's loopback, and nothing protects what goes there; name a "
       "directory of certificates (--certs, certs=DIR), or say --insecure or insecure=on where "
       "everyone on the network may read and change what is sent",
       address);
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const GrpcSecurity& security) {
  if (security.certificates.empty()) return grpc::InsecureServerCredentials();
  const Files files = read_files(security.certificates);
  if (files.identity.rank) {
    fail(ErrorCode::kInvalidArgument,
         "the certificate in '{}' is that of rank {}; a hub needs its own", security.certificates,
         *files.identity.rank);
  }
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = files.authority;
  options.pem_key_cert_pairs.push_back({files.key, files.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const GrpcSecurity& security,
                                                              grpc::ChannelArguments& arguments) {
  if (security.certificates.empty()) return grpc::InsecureChannelCredentials();
  const Files files = read_files(security.certificates);
  arguments.SetSslTargetNameOverride(hub_dns_name(files.identity.job));
  return grpc::SslCredentials({.pem_root_certs = files.authority,
                               .pem_private_key = files.key,
                               .pem_cert_chain = files.certificate});
}

std::optional<std::string> objection(const grpc::AuthContext& peer, std::uint32_t rank,
                                     const std::string& job) {
  if (job.empty()) return std::nullopt;
  for (const grpc::string_ref& name : peer.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    const auto identity = parse_uri(std::string(name.data(), name.size()));
    if (!identity) continue;
    if (identity->job != job) {
      return fmt::format("its certificate is of job '{}', not of '{}'", identity->job, job);
    }
    if (identity->rank == rank) return std::nullopt;
    return identity->rank ? fmt::format("its certificate is that of rank {}, not of rank {}",
                                        *identity->rank, rank)
                          : std::string("its certificate is the hub's");
  }
  return "its certificate names no node of a job; have one made by 'tersewire certs'";
}

std::string job_of(const GrpcSecurity& security) {
  return security.certificates.empty() ? "" : read_files(security.certificates).identity.job;
}

int certified_rank(const GrpcSecurity& security) {
  const Identity identity = read_files(security.certificates).identity;
  if (!identity.rank) {
    fail(ErrorCode::kInvalidArgument, "the certificate in '{}' is the hub's; a node needs its own",
         security.certificates);
  }
  return static_cast<int>(*identity.rank);
}

}  // namespace tersewire
