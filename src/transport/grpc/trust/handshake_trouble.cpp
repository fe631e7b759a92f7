#include "handshake_trouble.h"

#include <fmt/chrono.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>

#include "certificates.h"
#include "errors.h"
#include "openssl_free.h"

namespace tersewire {
namespace {

constexpr int kPatienceSeconds = 3;
constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};  // a length and a name

using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Free<SSL_free>>;
using PeerCertificate = std::unique_ptr<X509, Free<X509_free>>;

// OpenSSL writes to connections that the other end may have closed. Of this thread alone.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    while (::sigtimedwait(&pipe_, nullptr, &now) > 0) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// Connected, or null.
BIO* connection_to(const HostAndPort& hub) {
  BIO* const bio = BIO_new_connect(hub.text().c_str());
  if (bio == nullptr) return nullptr;
  BIO_set_nbio(bio, 1);
  if (BIO_do_connect_retry(bio, kPatienceSeconds, 50) != 1) {
    BIO_free(bio);
    return nullptr;
  }
  int descriptor = -1;
  BIO_get_fd(bio, &descriptor);
  BIO_socket_nbio(descriptor, 0);
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return bio;
}

// What this node finds in the hub's certificate.
std::optional<std::string> own_objection(SSL* session, const std::string& directory) {
  const PeerCertificate peer(SSL_get1_peer_certificate(session));
  if (!peer) return std::nullopt;
  const Validity valid = validity_of(peer.get());
  switch (SSL_get_verify_result(session)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return fmt::format(
          "the hub's certificate has expired ({}): renew it there with 'tersewire certs join', or "
          "compare the clocks of both machines",
          expiry_text(valid));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return fmt::format(
          "the hub's certificate is not valid yet ({}): compare the clocks of both machines",
          begin_text(valid));
    case X509_V_OK:
      return std::nullopt;
    default:
      return fmt::format(
          "its certificate is not of the authority in '{}': get this node one of the hub's job "
          "with 'tersewire certs join'",
          directory);
  }
}

// What the hub finds in this node's: gRPC closes the connection then, and sends no reason.
std::string hubs_objection(const std::string& directory) {
  const std::string file = directory + "/certificate.pem";
  const Validity valid = validity_of(read_text(file));
  return fmt::format(
      "the hub closes the connection when it has seen the certificate in '{}', which is valid from "
      "{:%F %T} to {:%F %T} UTC while this machine's clock says {:%F %T}: compare the clocks of "
      "both machines, and have it signed by the hub's own authority ('tersewire certs join')",
      file, fmt::gmtime(valid.from), fmt::gmtime(valid.until),
      fmt::gmtime(std::chrono::system_clock::now()));
}

}  // namespace

std::optional<std::string> handshake_trouble(const HostAndPort& hub, const std::string& directory) {
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_client_method()));
  const auto in = [&](const char* name) { return directory + name; };
  if (!context ||
      SSL_CTX_load_verify_locations(context.get(), in("/authority.pem").c_str(), nullptr) != 1 ||
      SSL_CTX_use_certificate_file(context.get(), in("/certificate.pem").c_str(),
                                   SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_use_PrivateKey_file(context.get(), in("/key.pem").c_str(), SSL_FILETYPE_PEM) != 1) {
    ERR_clear_error();
    return std::nullopt;
  }
  const WithoutSigpipe guard;
  const Session session(SSL_new(context.get()));
  BIO* const connection = connection_to(hub);
  if (!session || connection == nullptr) {
    BIO_free(connection);
    ERR_clear_error();
    return std::nullopt;
  }
  SSL_set_bio(session.get(), connection, connection);
  // It goes on, to see what the other end says: nothing is sent or believed here.
  SSL_set_alpn_protos(session.get(), kHttp2.data(), kHttp2.size());
  SSL_set_verify(session.get(), SSL_VERIFY_NONE, nullptr);
  const bool is_done = SSL_connect(session.get()) == 1;
  std::optional<std::string> found =
      is_done ? own_objection(session.get(), directory) : std::nullopt;
  if (is_done && !found) {
    // A hub that has no objection sends its settings.
    char byte = 0;
    errno = 0;
    const int got = SSL_read(session.get(), &byte, 1);
    if (got <= 0 && errno != EAGAIN) found = hubs_objection(directory);
  }
  ERR_clear_error();
  return found;
}

}  // namespace tersewire
