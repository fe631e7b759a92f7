#include "apps/bench/gradient_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tersewire/error.h"

namespace tersewire::bench {
namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 20;

// How gradients are spread. quantiles[k] is the magnitude, over the root of the mean square, that
// all but 2^(-k/2) of the values stay below.
struct Spread {
  double root_mean_square;
  std::array<float, 33> quantiles;
};

// Recorded from gradients of the 500th step of LeNet (MNIST-like images) and ResNet-20 (CIFAR-10)
// and of the 150th of a character LSTM. Each tensor was divided by the root of its mean square;
// that of the kind is the geometric mean over its tensors.
constexpr Spread kConv = {
    2.58e-3, {5.76e-06F, 0.213F, 0.426F, 0.653F, 0.888F, 1.13F, 1.38F, 1.64F, 1.91F, 2.2F,  2.48F,
              2.8F,      3.13F,  3.47F,  3.81F,  4.19F,  4.55F, 4.87F, 5.22F, 5.59F, 5.96F, 6.36F,
              6.77F,     7.1F,   7.5F,   7.82F,  8.38F,  8.74F, 9.14F, 9.6F,  10.F,  10.3F, 10.4F}};
constexpr Spread kDense = {
    4.32e-3,
    {7.07e-08F, 0.0815F, 0.219F, 0.395F, 0.611F, 0.864F, 1.15F, 1.47F, 1.83F, 2.22F, 2.64F,
     3.09F,     3.57F,   4.08F,  4.59F,  5.08F,  5.58F,  6.16F, 6.7F,  7.27F, 7.81F, 8.32F,
     8.81F,     9.45F,   10.1F,  10.7F,  11.2F,  11.7F,  11.8F, 12.2F, 12.4F, 13.F,  13.1F}};
constexpr Spread kRecurrent = {
    8.42e-6, {0.F,   0.0259F, 0.082F, 0.18F, 0.333F, 0.569F, 0.908F, 1.33F, 1.81F, 2.32F, 2.84F,
              3.37F, 3.91F,   4.45F,  4.98F, 5.51F,  6.05F,  6.57F,  7.1F,  7.63F, 8.19F, 8.75F,
              9.31F, 9.88F,   10.5F,  11.1F, 11.8F,  12.5F,  13.3F,  14.F,  14.6F, 15.4F, 16.2F}};
// Biases; for norms and the rest as well.
constexpr Spread kBias = {
    1.6e-3, {1.27e-05F, 0.043F, 0.12F, 0.235F, 0.472F, 0.898F, 1.41F, 1.86F, 2.26F, 2.63F, 2.87F,
             3.24F,     3.51F,  3.84F, 4.18F,  4.33F,  4.57F,  5.06F, 5.45F, 5.54F, 5.62F, 5.75F,
             5.98F,     6.24F,  6.24F, 7.59F,  7.59F,  7.59F,  7.59F, 7.59F, 7.59F, 7.59F, 7.59F}};
constexpr std::array<const Spread*, 4> kSpreads = {&kConv, &kDense, &kRecurrent, &kBias};

std::size_t spread_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::kConv:
      return 0;
    case TensorKind::kDense:
    case TensorKind::kEmbedding:
      return 1;
    case TensorKind::kRecurrent:
      return 2;
    default:
      return 3;
  }
}

constexpr std::uint64_t kMixStep = 0x9E3779B97F4A7C15;

// SplitMix64 (Steele et al., 2014): its finaliser is a good hash of what it is given.
std::uint64_t mix(std::uint64_t state) {
  state += kMixStep;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

// The value that one random word stands for: its lowest bit is the sign, the others say how many
// of all values are larger.
float spread_value(const Spread& spread, std::uint64_t word) {
  const double larger = static_cast<double>((word >> 11) + 1) * 0x1p-53;
  const auto last = static_cast<double>(spread.quantiles.size() - 1);
  const double at = std::min(-2 * std::log2(larger), std::nextafter(last, 0));
  const auto below = static_cast<std::size_t>(at);
  const double part = at - static_cast<double>(below);
  const double magnitude = spread.root_mean_square *
                           std::lerp(spread.quantiles[below], spread.quantiles[below + 1], part);
  return static_cast<float>((word & 1) != 0 ? -magnitude : magnitude);
}

}  // namespace

GradientSource::GradientSource(const std::vector<TensorInfo>& tensors, std::uint64_t seed)
    : pools_(kSpreads.size()), seed_(seed) {
  std::array<std::size_t, kSpreads.size()> largest{};
  for (const TensorInfo& tensor : tensors) {
    windows_.push_back({.pool = spread_of(tensor.kind), .elems = tensor.elems()});
    std::size_t& elems = largest[windows_.back().pool];
    elems = std::max(elems, tensor.elems());
  }
  std::uint64_t word = mix(seed);
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    if (largest[i] == 0) continue;
    pools_[i] = {.values = Floats(largest[i] + kPlaces), .places = kPlaces};
    for (float& value : pools_[i].values) value = spread_value(*kSpreads[i], mix(++word));
  }
}

GradientSource::GradientSource(const std::vector<TensorInfo>& tensors, std::uint64_t seed,
                               std::span<const float> recorded)
    : seed_(seed) {
  if (recorded.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "there are no gradients to replay; name a larger array");
  }
  std::size_t largest = 0;
  for (const TensorInfo& tensor : tensors) {
    windows_.push_back({.pool = 0, .elems = tensor.elems()});
    largest = std::max(largest, tensor.elems());
  }
  Pool pool{.values = Floats(largest + recorded.size()), .places = recorded.size()};
  for (std::size_t i = 0; i < pool.values.size(); ++i) {
    pool.values[i] = recorded[i % recorded.size()];
  }
  pools_.push_back(std::move(pool));
}

std::span<const float> GradientSource::gradient(std::size_t tensor, int worker,
                                                std::uint64_t step) const {
  const Window& window = windows_.at(tensor);
  const Pool& pool = pools_[window.pool];
  const std::uint64_t place =
      mix(mix(mix(seed_ ^ step) ^ tensor) ^ static_cast<std::uint64_t>(worker)) % pool.places;
  return std::span(pool.values).subspan(place, window.elems);
}

Floats heavy_tailed_values(std::size_t n) {
  Floats values(n);
  constexpr float kUnit = 1.0F / 4294967296.0F;
  for (std::size_t i = 0; i < n; i += 2) {
    // Box-Muller: two normal values from two uniform ones, the first above 0.
    const std::uint64_t bits = mix(i / 2 * kMixStep);
    const float u = (static_cast<float>(bits >> 32) + 1) * kUnit;
    const float angle =
        2 * std::numbers::pi_v<float> * static_cast<float>(bits & 0xFFFFFFFFU) * kUnit;
    const float radius = std::sqrt(-2 * std::log(std::min(u, 1.0F)));
    const float first = radius * std::cos(angle);
    const float second = radius * std::sin(angle);
    values[i] = 1e-3F * first * first * first;
    if (i + 1 < n) values[i + 1] = 1e-3F * second * second * second;
  }
  return values;
}

}  // namespace tersewire::bench
