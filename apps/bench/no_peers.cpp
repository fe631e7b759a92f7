// In the place of peers.cpp where its libraries are not installed.
#include "apps/bench/peers.h"

namespace tersewire::bench {

std::vector<std::unique_ptr<Peer>> make_peers() { return {}; }

}  // namespace tersewire::bench
