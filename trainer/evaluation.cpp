#include "trainer/evaluation.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

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

std::string checksum_of(const Network& network) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  for (const Network::Parameter& parameter : network.parameters()) {
    const auto values = values_of(parameter);
    XXH64_update(&state, values.data(), values.size_bytes());
  }
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(XXH64_digest(&state)));
  return hex;
}

double test_accuracy(Network& network, const Dataset& test) {
  Batch batch(test);
  std::vector<std::uint32_t> indices;
  std::size_t right = 0;
  for (std::size_t first = 0; first < test.size(); first += kTestBatch) {
    indices.resize(std::min(kTestBatch, test.size() - first));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
    right += network.count_right(batch.gather(indices));
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
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

}  // namespace tersewire::trainer
