#include "host_and_port.h"

#include <arpa/inet.h>

#include "errors.h"
#include "tersewire/setting_text.h"

namespace tersewire {
namespace {

// With an interface (fe80::1%eth0) or without.
bool is_v6(const std::string& host) {
  in6_addr number{};
  return ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &number) == 1;
}

}  // namespace

std::string HostAndPort::text() const {
  if (host.find(':') == std::string::npos) return fmt::format("{}:{}", host, port);
  return fmt::format("[{}]:{}", host, port);
}

bool HostAndPort::is_loopback() const {
  in_addr number{};  // a name that begins with 127. may be anybody's
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost" ||
         (host.starts_with("127.") && ::inet_pton(AF_INET, host.c_str(), &number) == 1);
}

HostAndPort host_and_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const auto number = parsed_number<std::uint16_t>(port);
  if (number && is_v6(host)) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is not an address: an IPv6 address needs brackets; write [{}]:{}", text, host, port);
  }
  if (is_v6(text)) {
    fail(ErrorCode::kInvalidArgument,
         "'{0}' is not an address: an IPv6 address needs brackets, and a port; write [{0}]:PORT",
         text);
  }
  const bool in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets) host = host.substr(1, host.size() - 2);
  const bool is_number = is_v6(host);
  if (!number || host.empty() || in_brackets != is_number ||
      (!is_number && host.find(':') != std::string::npos)) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is not an address; write HOST:PORT, with a port from 0 to 65535", text);
  }
  return {.host = host, .port = *number};
}

}  // namespace tersewire
