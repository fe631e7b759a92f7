#include "apps/run/watch/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/run/watch/prometheus_text.h"

namespace tersewire::apps {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::string_view kPath = "/metrics";

// What clients may cost: one thread serves all of them.
constexpr unsigned kMaxClients = 16;
constexpr unsigned kTimeoutSeconds = 2;
constexpr std::size_t kMaxRequestBytes = std::size_t{16} << 10;

struct Address {
  std::string host;  // as a URL has it
  std::uint16_t port = 0;
  // The longest first: it is what {} sets to 0.
  union {
    sockaddr_in6 v6;
    sockaddr_in v4;
    sockaddr any;
  } socket{};
};

bool set_host(Address& address, const std::string& host) {
  address.host = host;
  if (!host.starts_with('[') || !host.ends_with(']')) {
    address.socket.v4.sin_family = AF_INET;
    address.socket.v4.sin_port = htons(address.port);
    return ::inet_pton(AF_INET, host.c_str(), &address.socket.v4.sin_addr) == 1;
  }
  address.socket.v6.sin6_family = AF_INET6;
  address.socket.v6.sin6_port = htons(address.port);
  const std::string inner = host.substr(1, host.size() - 2);
  return ::inet_pton(AF_INET6, inner.c_str(), &address.socket.v6.sin6_addr) == 1;
}

// Whoever reaches the port can read the numbers: more than this machine has to be asked for.
Address address_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const bool has_host = colon != std::string::npos;
  const std::string port = has_host ? text.substr(colon + 1) : text;
  Address address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error == std::errc() && end == port.data() + port.size() &&
      set_host(address, has_host ? text.substr(0, colon) : kLoopback)) {
    return address;
  }
  throw WrongUsage(fmt::format(
      "--metrics takes PORT or ADDRESS:PORT, as 9100, 192.0.2.7:9100 or [::1]:9100, not '{}'",
      text));
}

MHD_Result respond(MHD_Connection* connection, unsigned status, const std::string& text,
                   const char* content_type) {
  // The library copies the text and does not write through the pointer.
  MHD_Response* response = MHD_create_response_from_buffer(
      text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

MHD_Result respond(MHD_Connection* connection, unsigned status, const std::string& sentence) {
  return respond(connection, status, sentence + "\n", "text/plain; charset=utf-8");
}

// What the library calls for each request, once its header is there. A request's body is not read.
MHD_Result answer(void* text, MHD_Connection* connection, const char* path, const char* method,
                  const char* /*version*/, const char* /*body*/, std::size_t* /*body_bytes*/,
                  void** /*request*/) {
  try {
    if (std::string_view(method) != MHD_HTTP_METHOD_GET &&
        std::string_view(method) != MHD_HTTP_METHOD_HEAD) {
      return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is answered");
    }
    if (kPath != path) {
      return respond(connection, MHD_HTTP_NOT_FOUND, fmt::format("there is only {}", kPath));
    }
    return respond(connection, MHD_HTTP_OK, (*static_cast<std::function<std::string()>*>(text))(),
                   PrometheusText::kContentType);
  } catch (const std::exception&) {
    return MHD_NO;
  }
}

class Daemon final : public MetricsServer {
 public:
  Daemon(const Address& address, std::function<std::string()> text) : text_(std::move(text)) {
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD;
    if (address.socket.any.sa_family == AF_INET6) flags |= MHD_USE_DUAL_STACK;  // [::] is all
    errno = 0;
    daemon_ =
        MHD_start_daemon(flags, 0, nullptr, nullptr, answer, &text_, MHD_OPTION_SOCK_ADDR,
                         &address.socket.any,                             //
                         MHD_OPTION_CONNECTION_LIMIT, kMaxClients,        //
                         MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds,  //
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxRequestBytes, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("metrics cannot be served on {}:{}: {}; choose another --metrics",
                              address.host, address.port, std::generic_category().message(errno)));
    }
    note(fmt::format("metrics are at http://{}:{}{}\n", address.host,
                     MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port, kPath));
  }
  ~Daemon() override { MHD_stop_daemon(daemon_); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

 private:
  std::function<std::string()> text_;
  MHD_Daemon* daemon_;
};

}  // namespace

std::unique_ptr<MetricsServer> serve_metrics(const std::string& address,
                                             std::function<std::string()> text) {
  return std::make_unique<Daemon>(address_of(address), std::move(text));
}

}  // namespace tersewire::apps
