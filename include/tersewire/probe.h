// Performance of a network and this machine, as predictions need it: measured, where predict.h
// calculates.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

// Between rank 0 and one other node, in bits of the link: message bytes as lab/netlab counts them,
// 1514 for 1448.
struct ProbedPeer {
  int rank = 0;
  double bits_per_second_to = 0;
  double bits_per_second_from = 0;
  double latency_seconds = 0;  // half of the median round trip of a small message
};

struct ProbedCodec {
  std::string codec;
  double encode_seconds_per_value = 0;  // by one thread, including its residual
  double decode_seconds_per_value = 0;  // decode_add
};

struct Probe {
  std::vector<ProbedPeer> peers;
  std::vector<ProbedCodec> codecs;
  std::size_t cores = 0;  // that this process may use

  // The minimum over all peers and both directions, in bits per second.
  [[nodiscard]] double rate() const;
  // The maximum over all peers, in seconds.
  [[nodiscard]] double latency() const;
};

// The longest message of a probe, in bytes.
inline constexpr std::size_t kLongestProbeMessage = std::size_t{1} << 26;

// Rank 0 probes every other node in turn, while the others idle; a few hundred ms per
// direction and node. The others answer until rank 0 is done, and return nothing. Throws
// kFailedPrecondition if there is no other node, kDataLoss for a message that is not a probe's, and
// like receive_within(). One thread per node.
std::vector<ProbedPeer> probe_network(Transport& transport, const WaitLimits& limits);

// The codecs that were measured for predictions (measured_codecs()), on synthetic values: processor
// time of the calling thread. Cost: a few seconds.
std::vector<ProbedCodec> probe_codecs();

// Both, by rank 0; the other nodes answer, and return an empty result. Throws like probe_network().
Probe probe(Transport& transport, const WaitLimits& limits);

}  // namespace tersewire
