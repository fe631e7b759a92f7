// The cause of a TLS handshake that fails, which gRPC does not say. No gRPC here.
#pragma once

#include <optional>
#include <string>

#include "host_and_port.h"

namespace tersewire {

// A sentence on what is wrong between the certificates in `directory` and the hub's, with what to
// do, found by a handshake that sends nothing else; nothing where it succeeds, or finds another
// cause. Takes a few seconds at most.
std::optional<std::string> handshake_trouble(const HostAndPort& hub, const std::string& directory);

}  // namespace tersewire
