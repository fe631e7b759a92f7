// What codec auto decided, and when, as JSON: a run's decisions.json, and what Python has of them.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/chooser/codec_chooser.h"

namespace tersewire::trainer {

nlohmann::json decisions_json(const CodecDecisions& decisions);

// The inverse, of any number of them. Throws kDataLoss for what is something else.
CodecDecisions decisions_in_json(const nlohmann::json& list);

}  // namespace tersewire::trainer
