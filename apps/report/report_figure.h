// A figure of a report, as a table: what the page draws and the CSV file holds.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

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

// Adds a group without the rows that have nothing beyond their first column, if any are left.
void add_group(Figure& figure, std::vector<std::string> key, std::vector<std::vector<double>> rows);

// Removes the columns in which nothing is.
void drop_empty_columns(Figure& figure);

// Rounds to seven digits, which is more than charts show; whole numbers stay as they are.
void round_numbers(Figure& figure);

std::string csv(const Figure& figure);

inline constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Points that a line is drawn of, at most.
inline constexpr std::size_t kMaxPoints = 150;

// At most `most` of the places below `count`, the first and the last among them.
std::vector<std::size_t> spread(std::size_t count, std::size_t most);

}  // namespace tersewire::apps
