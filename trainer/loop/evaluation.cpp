#include "trainer/loop/evaluation.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

// Samples at a time, fewer where they are large: activations take many times a sample's memory.
constexpr std::size_t kTestBatch = 500;
constexpr std::size_t kTestBatchValues = kTestBatch * 3 * 32 * 32;

std::size_t test_batch(const SampleKind& kind) {
  std::size_t values = kind.text ? static_cast<std::size_t>(kind.classes) : 1;
  for (const std::int64_t side : kind.shape) values *= static_cast<std::size_t>(side);
  return std::clamp(kTestBatchValues / values, std::size_t{1}, kTestBatch);
}

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

TestOutcome test_of(Network& network, const Samples& test) {
  BatchMaker batches(test, 0, 0);
  const std::size_t at_once = test_batch(test.kind());
  std::vector<std::uint32_t> indices;
  double loss_sum = 0;
  std::size_t right = 0;
  std::size_t labels = 0;
  for (std::size_t first = 0; first < test.size(); first += at_once) {
    indices.resize(std::min(at_once, test.size() - first));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
    const Batch& batch = batches.make(indices, first / at_once);
    const Network::Outcome outcome = network.test(batch);
    loss_sum += outcome.loss * static_cast<double>(batch.label_count);
    right += outcome.right;
    labels += batch.label_count;
  }
  const auto count = static_cast<double>(labels);
  return {.accuracy = static_cast<double>(right) / count, .loss = loss_sum / count};
}

}  // namespace tersewire::trainer
