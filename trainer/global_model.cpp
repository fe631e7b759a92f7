#include "trainer/global_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

// The cosine ends at this fraction of where it starts (3LC section 4.3: from 0.1 to 0.001).
constexpr double kFinalRateFraction = 0.01;
constexpr std::size_t kTestBatch = 500;

// MNIST's mean and deviation, which the embedded images are near enough to.
constexpr float kPixelMean = 0.1307F;
constexpr float kPixelDeviation = 0.3081F;

}  // namespace

std::vector<std::uint64_t> checksums_of(const std::vector<Network::Parameter>& parameters) {
  std::vector<std::uint64_t> checksums;
  for (const Network::Parameter& parameter : parameters) {
    const auto values = values_of(parameter);
    checksums.push_back(XXH64(values.data(), values.size_bytes(), 0));
  }
  return checksums;
}

const Images& Batch::gather(std::span<const std::uint32_t> indices) {
  pixels_.clear();
  labels_.clear();
  for (const std::uint32_t index : indices) {
    const auto image =
        std::span(data_.pixels).subspan(index * data_.image_bytes(), data_.image_bytes());
    for (const std::uint8_t pixel : image) {
      pixels_.push_back((static_cast<float>(pixel) / 255.0F - kPixelMean) / kPixelDeviation);
    }
    labels_.push_back(data_.labels[index]);
  }
  images_ = {pixels_.data(), labels_.data(), indices.size()};
  return images_;
}

GlobalModel::GlobalModel(const TrainConfig& config)
    : steps_(config.steps),
      rate_(config.learning_rate * (config.scale_learning_rate ? config.workers : 1)),
      network_(Network::make(config.model, config.seed)),
      taken_(network_->parameters().size(), 0) {
  for (const Network::Parameter& parameter : network_->parameters()) {
    optimizers_.push_back(Optimizer::make(parameter, config.momentum, config.weight_decay));
  }
}

void GlobalModel::update(std::size_t tensor, std::span<const float> gradient,
                         std::span<float> delta) {
  const std::span<const float> values = values_of(network_->parameters()[tensor]);
  std::ranges::copy(values, delta.begin());
  optimizers_[tensor]->step(gradient.data(), rate_at(taken_[tensor]++));
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = values[i] - delta[i];
}

double GlobalModel::test_accuracy(const Dataset& test) const {
  Batch batch(test);
  std::vector<std::uint32_t> indices;
  std::size_t right = 0;
  for (std::size_t first = 0; first < test.size(); first += kTestBatch) {
    indices.resize(std::min(kTestBatch, test.size() - first));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
    right += network_->count_right(batch.gather(indices));
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

std::string GlobalModel::checksum() const {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  for (const Network::Parameter& parameter : network_->parameters()) {
    const auto values = values_of(parameter);
    XXH64_update(&state, values.data(), values.size_bytes());
  }
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(XXH64_digest(&state)));
  return hex;
}

double GlobalModel::rate_at(std::uint64_t step) const {
  const double done = static_cast<double>(step) / static_cast<double>(steps_);
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return rate_ * (kFinalRateFraction + (1 - kFinalRateFraction) * cosine);
}

}  // namespace tersewire::trainer
