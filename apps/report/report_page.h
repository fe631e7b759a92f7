// A report as one HTML file that needs nothing else.
#pragma once

#include <optional>
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

// What a page says beside its figures.
struct PageText {
  Headline headline;
  std::vector<JobFact> job;
  Notes notes;
  std::vector<std::string> designs;  // their names, as figures' keys have them
  std::optional<std::string> baseline;
  std::string footnote;  // in the place of how runs are modelled, if any
};

// The whole file. What the data say cannot end their place in it: every '<' is escaped.
std::string report_html(const PageText& text, const std::vector<Figure>& figures);

// The same of runs.
std::string report_html(const Designs& designs, const Headline& headline,
                        const std::vector<Figure>& figures);

}  // namespace tersewire::apps
