// What a run writes as it begins and while it goes on; at its end it writes TrainSummary::json().
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/loop/train.h"

namespace tersewire::apps {

// One line of metrics.jsonl.
nlohmann::json metrics_json(const trainer::StepReport& report);

// One line of observations.jsonl.
nlohmann::json observation_json(const trainer::Observation& observation);

// The run's configuration as config.json holds it.
nlohmann::json config_json(const trainer::TrainConfig& config);

// Its servers: how many, or "colocated" where they are on the workers' nodes.
nlohmann::json servers_json(const trainer::TrainConfig& config, int servers);

}  // namespace tersewire::apps
