// What 'tersewire probe --json' says, as predictions take it.
#pragma once

#include <map>
#include <string>

#include "tersewire/predict.h"

namespace tersewire::apps {

struct ProbeFile {
  LinkSpeed link;
  std::map<std::string, CodecCost> push;  // by codec
  std::map<std::string, CodecCost> pull;
};

// A codec's entry has "codec" and, of "encode_seconds_per_value", "decode_seconds_per_value",
// "bits_per_value" and "pull_bits_per_value" (unless said as many as are pushed), what is to stand
// in the place of what was measured. Throws an Error that names the file and what is wrong.
ProbeFile read_probe(const std::string& path);

}  // namespace tersewire::apps
