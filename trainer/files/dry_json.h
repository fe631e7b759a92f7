// What a dry run found, as JSON: a run's dry.json, and what Python has of it. `tersewire predict
// --probe` takes the codecs' figures from it.
#pragma once

#include <nlohmann/json.hpp>

#include "tersewire/dry_run.h"
#include "tersewire/predict.h"

namespace tersewire::trainer {

// `link`: what the network is taken to be.
nlohmann::json dry_json(const DryRunFindings& found, const LinkSpeed& link);

}  // namespace tersewire::trainer
