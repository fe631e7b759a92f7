// A report as one HTML file that needs nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/report/report_designs.h"
#include "apps/report/report_figures.h"
#include "apps/report/report_headline.h"

namespace tersewire::apps {

// The page without its data: report/ in one file, made by CMake. `@REPORT_DATA@` stands where the
// data go.
std::string_view built_in_report_page();

// The whole file. What the data say cannot end their place in it: every '<' is escaped.
std::string report_html(const Designs& designs, const Headline& headline,
                        const std::vector<Figure>& figures);

}  // namespace tersewire::apps
