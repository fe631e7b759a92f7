// What designs came to: the means of their finished runs.
#pragma once

#include <cstddef>
#include <vector>

#include "apps/report/report_designs.h"

namespace tersewire::apps {

// The mean of a design's finished runs of one length; NaN where their summaries lack a number.
struct Outcome {
  double steps = 0;
  std::size_t runs = 0;
  SummaryNumbers means;
  double lowest = 0;  // accuracy of tests
  double highest = 0;
  std::vector<double> step_seconds;  // for each rate of the report
};

// Steps are as the rate has them, measured or modelled.
const char* times_name(const LinkRate& rate);

// By length, the shortest first. Runs that diverged or have no test accuracy are left out.
std::vector<Outcome> outcomes(const DesignRuns& design, const std::vector<LinkRate>& rates);

// The longest one. Of a design without a finished run what its course tells, the rest a NaN.
Outcome last_outcome(const DesignRuns& design, const std::vector<LinkRate>& rates);

}  // namespace tersewire::apps
