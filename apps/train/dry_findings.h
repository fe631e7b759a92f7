// What a dry run found (train --dry), as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/predict/predictions.h"
#include "tersewire/dry_run.h"

namespace tersewire::apps {

struct DryFindings {
  std::vector<TensorInfo> tensors;
  std::vector<DryRunRow> rows;  // as DryRun::rows() and totals()
  std::vector<DryRunRow> totals;
  double share = 0;  // of the time
};

// For `tersewire predict --probe` as well, which takes the codecs' figures from it.
nlohmann::json dry_json(const DryFindings& findings, const NamedLink& link);

// A table of the codecs, one of the tensors, and what predictions make of it: which codec to take
// for this job under this link, and above which rate none pays. `compute_seconds` of a step.
std::string dry_text(const DryFindings& findings, const Job& job, double compute_seconds,
                     const NamedLink& link);

}  // namespace tersewire::apps
