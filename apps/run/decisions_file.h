// decisions.json: what a run with --codec auto decided, and when.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/codec_chooser.h"

namespace tersewire::apps {

nlohmann::json decisions_json(const trainer::CodecDecisions& decisions);

// Throws kDataLoss, naming the file, for another one.
trainer::CodecDecisions read_decisions(const std::string& path);

}  // namespace tersewire::apps
