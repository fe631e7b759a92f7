// What a network's parameters are worth.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/samples.h"
#include "trainer/models/network.h"

namespace tersewire::trainer {

inline std::span<float> values_of(const Network::Parameter& parameter) {
  return {parameter.values, parameter.elems};
}

// XXH64 of each parameter's values.
std::vector<std::uint64_t> checksums_of(const std::vector<Network::Parameter>& parameters);

// XXH64 of all values, in hex.
std::string checksum_of(const Network& network);

struct TestOutcome {
  double accuracy;  // the part of the samples' labels that the network finds, 0 to 1
  double loss;      // cross entropy, mean over the labels
};

TestOutcome test_of(Network& network, const Samples& test);

}  // namespace tersewire::trainer
