// The figures of a report, as tables: what the page draws and the CSV files hold.
#pragma once

#include <string>
#include <vector>

#include "apps/report_designs.h"

namespace tersewire::apps {

// A table whose rows come in groups: a line of a chart, say. Every row of a group has the group's
// key in front.
struct Group {
  std::vector<std::string> key;
  std::vector<std::vector<double>> rows;  // NaN: nothing there
};

struct Figure {
  std::string id;     // the name of its file too
  std::string title;  // for people
  std::string hint;   // how to read it, a sentence or two
  std::vector<std::string> keys;
  std::vector<std::string> columns;
  std::vector<Group> groups;
};

// Every figure for which there is data, in the order of the page.
std::vector<Figure> make_figures(const Designs& designs);

// The names of all that there may be.
std::vector<std::string> figure_ids();

std::string csv(const Figure& figure);

// The mean of a design's finished runs of one length; NaN where their summaries lack a number.
struct Outcome {
  double steps = 0;
  std::size_t runs = 0;
  double accuracy = 0;  // of tests, 0 to 1; the next two are the lowest and the highest
  double lowest = 0;
  double highest = 0;
  double push_bits_per_value = 0;
  double pull_bits_per_value = 0;
  double compression_ratio = 0;
  std::vector<double> step_seconds;  // for each rate of the report
};

// Steps are as the rate has them, measured or modelled.
const char* times_name(const LinkRate& rate);

// By length, the shortest first. Runs without a test accuracy are left out.
std::vector<Outcome> outcomes(const Design& design, const std::vector<LinkRate>& rates);

}  // namespace tersewire::apps
