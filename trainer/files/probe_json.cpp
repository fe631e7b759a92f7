#include "trainer/files/probe_json.h"

#include <utility>

namespace tersewire::trainer {

nlohmann::ordered_json probe_json(const Probe& probe) {
  using Json = nlohmann::ordered_json;
  Json peers = Json::array();
  for (const ProbedPeer& peer : probe.peers) {
    peers.push_back({{"rank", peer.rank},
                     {"bits_per_second_to", peer.bits_per_second_to},
                     {"bits_per_second_from", peer.bits_per_second_from},
                     {"latency_seconds", peer.latency_seconds}});
  }
  Json codecs = Json::array();
  for (const ProbedCodec& codec : probe.codecs) {
    codecs.push_back({{"codec", codec.codec},
                      {"encode_seconds_per_value", codec.encode_seconds_per_value},
                      {"decode_seconds_per_value", codec.decode_seconds_per_value}});
  }
  return {{"rate_bits_per_second", probe.rate()},
          {"latency_seconds", probe.latency()},
          {"cores", probe.cores},
          {"peers", std::move(peers)},
          {"codecs", std::move(codecs)}};
}

}  // namespace tersewire::trainer
