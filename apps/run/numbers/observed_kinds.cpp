#include "apps/run/numbers/observed_kinds.h"

#include <cmath>
#include <map>

namespace tersewire::apps {

std::vector<ObservedKind> by_kind(const trainer::Observation& observation) {
  // Sums at first.
  std::map<TensorKind, ObservedKind> kinds;
  std::map<TensorKind, double> finite_values;
  for (const trainer::TensorObservation& tensor : observation.tensors) {
    const auto values = static_cast<double>(tensor.values);
    ObservedKind& kind = kinds[tensor.kind];
    kind.values += tensor.values;
    kind.bits_per_value += 8 * static_cast<double>(tensor.encoded_bytes);
    kind.residual_norm += values * tensor.residual_rms * tensor.residual_rms;
    if (tensor.not_finite) continue;
    kind.relative_error += values * tensor.relative_error;
    finite_values[tensor.kind] += values;
  }
  std::vector<ObservedKind> observed;
  for (auto& [name, kind] : kinds) {
    if (kind.values == 0) continue;
    const auto values = static_cast<double>(kind.values);
    observed.push_back({.kind = std::string(to_string(name)),
                        .values = kind.values,
                        .bits_per_value = kind.bits_per_value / values,
                        .residual_norm = std::sqrt(kind.residual_norm),
                        .relative_error = kind.relative_error / finite_values[name]});
  }
  return observed;
}

}  // namespace tersewire::apps
