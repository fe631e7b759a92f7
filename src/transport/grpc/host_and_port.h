// HOST:PORT, as people write where a hub or a node is. No gRPC here.
#pragma once

#include <cstdint>
#include <string>

namespace tersewire {

struct HostAndPort {
  std::string host;  // a name or a number; an IPv6 address without its brackets
  std::uint16_t port = 0;

  // With the brackets of an IPv6 address.
  [[nodiscard]] std::string text() const;
  // Whether the host is a number of loopback's, or localhost.
  [[nodiscard]] bool is_loopback() const;
};

// Throws kInvalidArgument for what is no address, an IPv6 address without brackets among it.
HostAndPort host_and_port(const std::string& text);

}  // namespace tersewire
