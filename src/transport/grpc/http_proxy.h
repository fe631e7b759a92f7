// The HTTP proxies that gRPC dials by, and the hosts for which it does not. No gRPC here.
#pragma once

#include <string>

namespace tersewire {

// The name of the variable whose proxy gRPC takes for this host; empty where it takes none: no
// variable names one, or no_grpc_proxy, no_proxy or NO_PROXY names the host (itself, a domain it is
// in, * for all, or, where it is a number, a network as 10.0.0.0/8).
std::string proxy_variable(const std::string& host);

}  // namespace tersewire
