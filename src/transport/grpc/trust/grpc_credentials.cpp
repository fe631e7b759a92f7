#include "grpc_credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <chrono>

#include "certificates.h"
#include "errors.h"
#include "grpc_batch.h"
#include "grpc_record.h"
#include "handshake_trouble.h"
#include "host_and_port.h"
#include "http_proxy.h"
#include "tersewire/grpc_members.h"

namespace tersewire {
namespace {

// Of one's own files, where one listens.
constexpr unsigned kRereadSeconds = 5;
constexpr std::chrono::minutes kExpiresSoon(30);

struct Files {
  std::string certificate;
  std::string key;
  std::string authority;
  Identity identity;
};

Files read_files(const std::string& directory) {
  const std::string certificate = directory + "/certificate.pem";
  Files files{.certificate = read_text(certificate),
              .key = read_text(directory + "/key.pem"),
              .authority = read_text(directory + "/authority.pem"),
              .identity = {}};
  files.identity = identity_of(files.certificate, certificate);
  return files;
}

std::optional<Identity> peer_identity(const grpc::AuthContext& peer) {
  for (const grpc::string_ref& name : peer.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    if (auto identity = parse_uri(std::string(name.data(), name.size()))) return identity;
  }
  return std::nullopt;
}

// The variable that names the proxy by which the hub is dialed, if it is.
std::string proxy_of(const std::string& hub) {
  const HostAndPort place = host_and_port(hub);
  return place.is_loopback() ? "" : proxy_variable(place.host);
}

}  // namespace

bool is_loopback(const std::string& address) { return host_and_port(address).is_loopback(); }

void check_protected(const std::string& address, const GrpcSecurity& security) {
  host_and_port(address);
  if (!security.certificates.empty() || security.insecure || is_loopback(address)) return;
  fail(ErrorCode::kInvalidArgument,
       "'{}' is not on this machine's loopback, and nothing protects what is sent there; name a "
       "directory of certificates (--certs, certs=DIR), or use --insecure, or insecure=on (True in "
       "Python), if everyone on the network may read and change what is sent",
       address);
}

void check_direct(const std::string& address, const GrpcSecurity& security) {
  HostAndPort own = host_and_port(address);
  const bool is_any = own.host == "0.0.0.0" || own.host == "::";
  if (own.port == 0) own.port = 1;
  if (!is_peer_address(own.text()) || is_any) {
    fail(ErrorCode::kInvalidArgument,
         "direct={} is not an address at which other nodes reach this one; write HOST:PORT, this "
         "machine's own, with port 0 for any",
         address);
  }
  check_protected(address, security);
}

// Whose a certificate is, objection() looks at: host names say nothing.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const GrpcSecurity& security) {
  if (security.certificates.empty()) return grpc::InsecureServerCredentials();
  const std::string& directory = security.certificates;
  read_files(directory);
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      directory + "/key.pem", directory + "/certificate.pem", directory + "/authority.pem",
      kRereadSeconds));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const GrpcSecurity& security,
                                                              grpc::ChannelArguments& arguments,
                                                              const std::optional<Identity>& peer) {
  if (security.certificates.empty()) return grpc::InsecureChannelCredentials();
  const Files files = read_files(security.certificates);
  const Identity hub{.job = files.identity.job, .rank = std::nullopt};
  arguments.SetSslTargetNameOverride(dns_name_of(peer.value_or(hub)));
  return grpc::SslCredentials({.pem_root_certs = files.authority,
                               .pem_private_key = files.key,
                               .pem_cert_chain = files.certificate});
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& address, const GrpcSecurity& security,
                                          const std::optional<Identity>& peer) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  arguments.SetMaxReceiveMessageSize(kMostBatchBytes);
  // A proxy is for what is outside.
  if (peer || proxy_of(address).empty()) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = channel_credentials(security, arguments, peer);
  // A peer's address is from outside, and must not be taken for one of another kind (unix:1).
  return grpc::CreateCustomChannel(peer ? "dns:///" + address : address, credentials, arguments);
}

std::string certificate_of(const grpc::AuthContext& peer) {
  const auto found = peer.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? "" : std::string(found.front().data(), found.front().size());
}

std::string shown(const Identity& identity) {
  return identity.rank ? fmt::format("rank {}", *identity.rank)
                       : fmt::format("'{}'", identity.name);
}

std::optional<std::string> objection(const grpc::AuthContext& peer, const Identity& claimed) {
  if (claimed.job.empty()) return std::nullopt;
  const auto identity = peer_identity(peer);
  if (!identity)
    return "its certificate names no node of a job; have one made by 'tersewire certs'";
  if (identity->job != claimed.job) {
    return fmt::format("its certificate is of job '{}', not of '{}'", identity->job, claimed.job);
  }
  if (identity->is_hub()) return "its certificate is the hub's";
  const bool is_anyone = claimed.is_hub();
  if (is_anyone || (identity->rank == claimed.rank && identity->name == claimed.name)) return {};
  return fmt::format("its certificate is that of {}, not of {}", shown(*identity), shown(claimed));
}

std::string job_of(const GrpcSecurity& security) {
  return security.certificates.empty() ? "" : read_files(security.certificates).identity.job;
}

void check_valid_now(const GrpcSecurity& security) {
  if (security.certificates.empty()) return;
  const Files files = read_files(security.certificates);
  check_valid_now(files.certificate, security.certificates + "/certificate.pem",
                  "renew it with 'tersewire certs join'");
  check_valid_now(files.authority, security.certificates + "/authority.pem", kNewAuthority);
}

std::string what_to_check(const std::string& hub, const std::string& trouble,
                          const GrpcSecurity& security) {
  const auto says = [&](std::string_view what) { return trouble.find(what) != std::string::npos; };
  const std::string proxy = proxy_of(hub);
  if (!security.certificates.empty() && proxy.empty()) {
    if (const auto why = handshake_trouble(host_and_port(hub), security.certificates)) return *why;
  }
  if (says("certificate verify failed")) {
    return fmt::format(
        "its certificate is not of the job and authority in '{}': get this node one of the hub's "
        "job with 'tersewire certs join'",
        security.certificates);
  }
  // As OpenSSL says it, from 3.2 on in other ways.
  if (says("wrong version number") || says("packet length too long") ||
      says("record layer failure")) {
    return "start it with --certs, or this node without";
  }
  if (!proxy.empty()) {
    const HostAndPort place = host_and_port(hub);
    return fmt::format(
        "it was dialed by the HTTP proxy that {} names: check whether that runs and allows CONNECT "
        "to port {}, or add {} to no_proxy",
        proxy, place.port, place.host);
  }
  std::string what = "check whether it runs there and listens to other machines";
  if (security.certificates.empty())
    what += ", and, if it has certificates, give this node its own";
  return what;
}

std::optional<std::string> expiry_warning(const GrpcSecurity& security) {
  if (security.certificates.empty()) return std::nullopt;
  const std::string file = security.certificates + "/certificate.pem";
  const auto left = validity_of(read_text(file)).until - std::chrono::system_clock::now();
  if (left > kExpiresSoon) return std::nullopt;
  return fmt::format(
      "the hub's certificate in '{}' {}; renew it with 'tersewire certs join', or nodes can no "
      "longer connect",
      file,
      left > left.zero()
          ? fmt::format("expires in {} min", std::chrono::ceil<std::chrono::minutes>(left).count())
          : "has expired");
}

void check_is_hub(const GrpcSecurity& security) {
  if (security.certificates.empty()) return;
  const Identity identity = read_files(security.certificates).identity;
  if (identity.is_hub()) return;
  fail(ErrorCode::kInvalidArgument, "the certificate in '{}' is that of {}; a hub needs its own",
       security.certificates, shown(identity));
}

int certified_rank(const GrpcSecurity& security) {
  const Identity identity = read_files(security.certificates).identity;
  if (!identity.rank) {
    fail(ErrorCode::kInvalidArgument,
         "the certificate in '{}' is for no rank; have one made with 'tersewire certs sign --rank'",
         security.certificates);
  }
  return static_cast<int>(*identity.rank);
}

std::string certified_name(const GrpcSecurity& security) {
  Identity identity = read_files(security.certificates).identity;
  if (identity.name.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the certificate in '{}' is for no name; have one made with 'tersewire certs sign --name'",
         security.certificates);
  }
  return identity.name;
}

}  // namespace tersewire
