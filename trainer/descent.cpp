#include "trainer/descent.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "trainer/evaluation.h"

namespace tersewire::trainer {
namespace {

// The cosine ends at this fraction of where it starts (3LC section 4.3: from 0.1 to 0.001).
constexpr double kFinalRateFraction = 0.01;

}  // namespace

Descent::Descent(const TrainConfig& config, const Network& network)
    : steps_((config.steps - 1) / static_cast<std::uint64_t>(config.local_steps) + 1),
      rate_(config.learning_rate * (config.scale_learning_rate ? config.workers : 1)),
      parameters_(network.parameters()),
      taken_(parameters_.size(), 0) {
  for (const Network::Parameter& parameter : parameters_) {
    optimizers_.push_back(
        Optimizer::make({.momentum = config.momentum, .weight_decay = config.weight_decay},
                        parameter.values, parameter.elems));
  }
}

void Descent::take_step(std::size_t tensor, std::span<const float> gradient,
                        std::span<float> delta) {
  advance(tensor, gradient, delta);
  const std::span<const float> values = values_of(parameters_[tensor]);
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = values[i] - delta[i];
}

void Descent::propose_step(std::size_t tensor, std::span<const float> gradient,
                           std::span<float> delta) {
  advance(tensor, gradient, delta);
  const std::span<float> values = values_of(parameters_[tensor]);
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const float after = std::exchange(values[i], delta[i]);
    delta[i] = after - values[i];
  }
}

void Descent::advance(std::size_t tensor, std::span<const float> gradient,
                      std::span<float> before) {
  std::ranges::copy(values_of(parameters_[tensor]), before.begin());
  const std::uint64_t taken = taken_[tensor]++;
  optimizers_[tensor]->step(gradient.data(), rate_at(taken), taken);
}

double Descent::rate_at(std::uint64_t step) const {
  const double done = static_cast<double>(step) / static_cast<double>(steps_);
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return rate_ * (kFinalRateFraction + (1 - kFinalRateFraction) * cosine);
}

}  // namespace tersewire::trainer
