// A page of charts of what designs would take.
#pragma once

#include <string>

#include "apps/predict/predictions.h"

namespace tersewire::apps {

// Speedup against the number of workers at this link's rate, and against the rate with so many
// workers, a line for the fastest exchange of each codec.
void write_prediction_page(const std::string& path, const std::string& model,
                           const PredictionPlan& plan, int workers, const NamedLink& link);

}  // namespace tersewire::apps
