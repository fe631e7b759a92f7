// A network's images, a batch at a time, and what its parameters are worth.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/models/network.h"

namespace tersewire::trainer {

inline std::span<float> values_of(const Network::Parameter& parameter) {
  return {parameter.values, parameter.elems};
}

// XXH64 of each parameter's values.
std::vector<std::uint64_t> checksums_of(const std::vector<Network::Parameter>& parameters);

// XXH64 of all values, in hex.
std::string checksum_of(const Network& network);

// The part of the images that is classified rightly, 0 to 1.
double test_accuracy(Network& network, const Dataset& test);

// Images of a data set as the network takes them; keeps its memory from batch to batch. One thread
// at a time.
class Batch {
 public:
  explicit Batch(const Dataset& data) : data_(data) {}

  // Valid until the next call.
  const Images& gather(std::span<const std::uint32_t> indices);

 private:
  const Dataset& data_;
  std::vector<float> pixels_;
  std::vector<std::int64_t> labels_;
  Images images_{};
};

}  // namespace tersewire::trainer
