// What changes a model: momentum SGD with cosine decay, a tensor at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/models/network.h"
#include "trainer/models/optimizer.h"
#include "trainer/train.h"

namespace tersewire::trainer {

// Different tensors may be changed by different threads at once.
class Descent {
 public:
  // Works in the network's own memory, which must outlive it.
  Descent(const TrainConfig& config, const Network& network);

  // One step of a tensor: what that changed goes to `delta`.
  void take_step(std::size_t tensor, std::span<const float> gradient, std::span<float> delta);
  // The same for a replica, whose values stay as they are: what pulls them adds `delta`.
  void propose_step(std::size_t tensor, std::span<const float> gradient, std::span<float> delta);

 private:
  // Changes the values; those before the step go to `before`.
  void advance(std::size_t tensor, std::span<const float> gradient, std::span<float> before);
  [[nodiscard]] double rate_at(std::uint64_t step) const;

  std::uint64_t steps_;  // in which the model changes
  double rate_;
  const std::vector<Network::Parameter>& parameters_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<std::uint64_t> taken_;  // steps, by tensor
};

}  // namespace tersewire::trainer
