// An observed step by kinds of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/loop/observation.h"

namespace tersewire::apps {

struct ObservedKind {
  std::string kind;  // "conv", "dense", ...
  std::uint64_t values = 0;
  double bits_per_value = 0;
  double residual_norm = 0;  // root of the sum of the residuals' squares
  // Mean of the tensors', by their numbers of values; NaN where none was finite.
  double relative_error = 0;
};

// Those that there are.
std::vector<ObservedKind> by_kind(const trainer::Observation& observation);

}  // namespace tersewire::apps
