// The servers' model, and what changes it: momentum SGD with cosine decay, a tensor at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/models/network.h"
#include "trainer/train.h"

namespace tersewire::trainer {

inline std::span<float> values_of(const Network::Parameter& parameter) {
  return {parameter.values, parameter.elems};
}

// XXH64 of each parameter's values.
std::vector<std::uint64_t> checksums_of(const std::vector<Network::Parameter>& parameters);

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

// Different tensors may be updated by different threads at once; the rest is for one thread.
class GlobalModel {
 public:
  explicit GlobalModel(const TrainConfig& config);

  [[nodiscard]] const std::vector<Network::Parameter>& parameters() const {
    return network_->parameters();
  }
  // One tensor's step: what it changed goes to `delta`.
  void update(std::size_t tensor, std::span<const float> gradient, std::span<float> delta);

  [[nodiscard]] double test_accuracy(const Dataset& test) const;
  // XXH64 of all values, in hex.
  [[nodiscard]] std::string checksum() const;

 private:
  [[nodiscard]] double rate_at(std::uint64_t step) const;

  std::uint64_t steps_;
  double rate_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<std::uint64_t> taken_;  // steps, by tensor
};

}  // namespace tersewire::trainer
