// What a dry run found (train --dry), as text.
#pragma once

#include <string>

#include "apps/predict/predictions.h"
#include "tersewire/dry_run.h"

namespace tersewire::apps {

// Its table, and what predictions make of it: which codec to take for this job under this link, and
// above which rate none pays. `compute_seconds` of a step.
std::string dry_text(const DryRunFindings& findings, const Job& job, double compute_seconds,
                     const NamedLink& link);

}  // namespace tersewire::apps
