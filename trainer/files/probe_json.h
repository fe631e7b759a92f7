// What a probe found, as `tersewire probe --json` and tersewire.torch.probe() have it.
#pragma once

#include <nlohmann/json.hpp>

#include "tersewire/probe.h"

namespace tersewire::trainer {

nlohmann::ordered_json probe_json(const Probe& probe);

}  // namespace tersewire::trainer
