// What an observed step shows: the model's accuracy, and what becomes of each tensor on its way out
// of worker 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tersewire/tensor.h"

namespace tersewire::trainer {

// Counts of values in bins of equal width from -limit to limit, the middle one around 0.
struct Histograms {
  static constexpr std::size_t kBins = 63;
  using Counts = std::array<std::uint64_t, kBins>;

  double limit = 0;   // the largest magnitude of both; 0 where all values are 0
  Counts gradient{};  // of what was to be sent, without the residual
  Counts decoded{};   // of what receivers decode
};

struct TensorObservation {
  std::string name;
  TensorKind kind = TensorKind::kOther;
  std::uint64_t values = 0;
  std::string codec;                // that the policy chose, with all its parameters
  std::uint64_t encoded_bytes = 0;  // the payload
  bool not_finite = false;  // it held a NaN or an infinity; rms, error and histograms are then 0
  double rms = 0;           // root mean square of what was to be sent, without the residual
  // Root mean square of (decoded - what was encoded) over that of what was encoded: the gradient
  // and the residual together.
  double relative_error = 0;
  // Of the residual's magnitudes, before the step; 0 where the codec keeps none.
  double residual_rms = 0;
  double residual_p95 = 0;
  double residual_max = 0;
  Histograms histograms;
};

struct Observation {
  std::uint64_t step = 0;
  double seconds = 0;                      // since the start, without the time that observing took
  double test_accuracy = 0;                // of worker 0's replica before the step, 0 to 1
  double test_loss = 0;                    // of the same: cross entropy, mean over the labels
  std::vector<TensorObservation> tensors;  // in the order of the model
};

}  // namespace tersewire::trainer
