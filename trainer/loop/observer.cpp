#include "trainer/loop/observer.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tersewire/policy.h"

namespace tersewire::trainer {
namespace {

constexpr double kHighPart = 0.95;

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

Histograms::Counts counts_of(std::span<const float> values, double limit) {
  Histograms::Counts counts{};
  constexpr auto kLast = static_cast<double>(Histograms::kBins - 1);
  for (const float value : values) {
    const double place = limit > 0 ? (value / limit + 1) / 2 * Histograms::kBins : kLast / 2;
    ++counts[static_cast<std::size_t>(std::clamp(std::floor(place), 0.0, kLast))];
  }
  return counts;
}

Histograms histograms_of(std::span<const float> gradient, std::span<const float> decoded) {
  const double limit = std::max(largest_magnitude(gradient), largest_magnitude(decoded));
  return {
      .limit = limit, .gradient = counts_of(gradient, limit), .decoded = counts_of(decoded, limit)};
}

void observe_residual(std::span<const float> residual, TensorObservation& observation) {
  if (residual.empty()) return;
  std::vector<float> magnitudes(residual.begin(), residual.end());
  for (float& value : magnitudes) value = std::abs(value);
  const auto high =
      static_cast<std::ptrdiff_t>(kHighPart * static_cast<double>(magnitudes.size() - 1));
  std::ranges::nth_element(magnitudes, magnitudes.begin() + high);
  observation.residual_rms = rms(residual);
  observation.residual_p95 = magnitudes[static_cast<std::size_t>(high)];
  observation.residual_max = largest_magnitude(residual);
}

double relative_error(std::span<const float> values, std::span<const float> residual,
                      std::span<const float> decoded) {
  std::vector<float> encoded(values.begin(), values.end());
  for (std::size_t i = 0; i < residual.size(); ++i) encoded[i] += residual[i];
  const double size = rms(encoded);
  for (std::size_t i = 0; i < encoded.size(); ++i) encoded[i] = decoded[i] - encoded[i];
  return size > 0 ? rms(encoded) / size : 0;
}

}  // namespace

Observer::Observer(const Job& job, int rank)
    : job_(job),
      rank_(rank),
      codecs_(choose_codecs(job.policy, job.push_codec, job.tensors, job.local_updates)) {}

TensorObservation Observer::look(std::size_t tensor, std::uint64_t step,
                                 std::span<const float> values,
                                 std::span<const float> residual) const {
  const TensorInfo& info = job_.tensors[tensor];
  TensorObservation observation{.name = info.name,
                                .kind = info.kind,
                                .values = values.size(),
                                .codec = codecs_[tensor]->text(),
                                .histograms = {}};
  const auto encoder =
      codecs_[tensor]->make_encoder(values.size(), {.seed = job_.seed,
                                                    .sender = static_cast<std::uint32_t>(rank_),
                                                    .tensor = static_cast<std::uint32_t>(tensor),
                                                    .kind = info.kind});
  if (encoder->residual().empty()) residual = {};  // another codec has left it
  std::ranges::copy(residual, encoder->residual().begin());
  Bytes payload;
  const Encoded encoded = encoder->encode(values, step, payload);
  observation.encoded_bytes = payload.size();
  observation.not_finite = encoded.not_finite;
  const bool follows = encoder->sends_differences();
  if (!follows) observe_residual(residual, observation);
  if (encoded.not_finite) return observation;
  std::vector<float> decoded(values.size());
  decode(encoded.codec, payload, decoded);
  if (follows) {
    // Receivers add it to what was sent, and the values are ahead of that by what they lack.
    std::ranges::transform(decoded, residual, decoded.begin(), std::minus<>());
    std::vector<float> ahead(values.size());
    std::ranges::transform(values, decoded, ahead.begin(), std::minus<>());
    observe_residual(ahead, observation);
    residual = {};
  }
  observation.rms = rms(values);
  observation.relative_error = relative_error(values, residual, decoded);
  observation.histograms = histograms_of(values, decoded);
  return observation;
}

}  // namespace tersewire::trainer
