// Step times of a comparison's designs over the limited links of lab/netlab.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/compare/compare_plan.h"
#include "apps/compare/compare_report.h"

namespace tersewire::apps {

// Runs `tersewire bench exchange` under `netlab` for each design and rate, one after the other,
// with the design's exchange, codec and policy, the job's model, and the processor time of the
// baseline's computation as waiting. What it measured is kept in `out`/lab and not measured again;
// with an empty `netlab` that is all there is. What cannot be measured has the reason instead;
// where netlab itself cannot run, nothing more is tried. Returns early once `interrupted` is set.
// Throws an Error where a file cannot be written.
LabSteps measure_in_lab(const ComparePlan& plan, const std::vector<CellOutcome>& outcomes,
                        const std::filesystem::path& out, const std::string& netlab);

}  // namespace tersewire::apps
