// What a network and this machine can do, as predictions need it.
#pragma once

#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::apps {

// Between rank 0 and one other node, in bits of the link: message bytes as lab/netlab counts them,
// 1514 for 1448.
struct ProbedPeer {
  int rank = 0;
  double bits_per_second_to = 0;
  double bits_per_second_from = 0;
  double latency_seconds = 0;  // half of the median round trip of a small message
};

// By rank 0: every other node in turn, the others idle; some hundred milliseconds each way and
// node. The others answer until rank 0 is done, and return nothing. Throws kFailedPrecondition
// where there is no other node, kDataLoss for a message that is none of a probe's, and like
// receive_within().
std::vector<ProbedPeer> probe_network(Transport& transport, const WaitLimits& limits);

struct ProbedCodec {
  std::string codec;
  double encode_seconds_per_value = 0;  // by one thread, its residual included
  double decode_seconds_per_value = 0;  // decode_add
};

// Those that were measured for predictions, over made-up values, some seconds of one core.
std::vector<ProbedCodec> probe_codecs();

}  // namespace tersewire::apps
