// The card as a daemon on this machine's network: all that knows netfilter. One thread; root.
//
// It sits behind NFQUEUE rather than a TUN device: only marked packets come here, addresses and
// routes stay as they are, and where the daemon has died the kernel sends packets on as if it had
// never been (the rules say bypass). Packets come one by one and with their checksums computed: the
// kernel cuts up what TCP handed down in larger pieces before it queues it. Arriving packets come
// behind the reassembly of fragments.
#pragma once

#include <functional>
#include <string>

#include "nic/card.h"

namespace tersewire::nic {

struct DaemonConfig {
  std::string interface;  // whose packets
  std::string codec;      // as Card takes it
};

// The name of the socket that takes notices (card.h), in the abstract name space of the network
// namespace, where any process may write.
inline constexpr const char* kNoticeSocket = "tersewire-nic";

// Sets the rules up (iptables, table mangle), calls `ready`, and is the card until the
// descriptor `stop` can be read; then removes the rules. Returns what it has counted. Throws
// kInvalidArgument for a codec that no card has or an interface that is not there,
// kFailedPrecondition where the machine does not let it, kUnimplemented in a build without
// libnetfilter_queue.
CardCounters run_daemon(const DaemonConfig& config, int stop, const std::function<void()>& ready);

}  // namespace tersewire::nic
