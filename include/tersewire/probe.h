// What a network and this machine can do, as predictions need it: measured, where predict.h
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
  double encode_seconds_per_value = 0;  // by one thread, its residual included
  double decode_seconds_per_value = 0;  // decode_add
};

struct Probe {
  std::vector<ProbedPeer> peers;
  std::vector<ProbedCodec> codecs;
  std::size_t cores = 0;  // that this process may use

  // The least of all peers, either way, in bits per second.
  [[nodiscard]] double rate() const;
  // The most of all peers, in seconds.
  [[nodiscard]] double latency() const;
};

// No message of a probe is longer, in bytes.
inline constexpr std::size_t kLongestProbeMessage = std::size_t{1} << 26;

// By rank 0: every other node in turn, the others idle; some hundred milliseconds each way and
// node. The others answer until rank 0 is done, and return nothing. Throws kFailedPrecondition
// where there is no other node, kDataLoss for a message that is none of a probe's, and like
// receive_within(). One thread a node.
std::vector<ProbedPeer> probe_network(Transport& transport, const WaitLimits& limits);

// Those that were measured for predictions (measured_codecs()), over made-up values: the
// processor's time of the calling thread. Cost: some seconds.
std::vector<ProbedCodec> probe_codecs();

// All of it, by rank 0; the other nodes answer, and return what is empty. Throws like
// probe_network().
Probe probe(Transport& transport, const WaitLimits& limits);

}  // namespace tersewire
