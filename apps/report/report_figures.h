// The figures of a report.
#pragma once

#include <string>
#include <vector>

#include "apps/report/report_designs.h"
#include "apps/report/report_figure.h"

namespace tersewire::apps {

// Every figure for which there is data, in the order of the page.
std::vector<Figure> make_figures(const Designs& designs);

// The names of all that there may be.
std::vector<std::string> figure_ids();

// Each of them; without groups where there is no data.

// Of whole runs (report_run_figures.cpp).
Figure designs_table(const Designs& designs);
Figure accuracy_for_bits(const Designs& designs);
Figure accuracy_over_time(const Designs& designs);
Figure step_time(const Designs& designs);
Figure sensitivity(const Designs& designs);

// Of their courses (report_course_figures.cpp).
Figure loss_over_steps(const Designs& designs);
Figure accuracy_over_steps(const Designs& designs);
Figure bits_over_steps(const Designs& designs);

// Of observed steps (report_observed_figures.cpp).
Figure histograms(const Designs& designs);
Figure residuals(const Designs& designs);
Figure layers(const Designs& designs);

}  // namespace tersewire::apps
