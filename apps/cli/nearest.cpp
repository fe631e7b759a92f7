#include "apps/cli/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tersewire::apps {
namespace {

// Levenshtein's, with one row of the table at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest(std::string_view wrong, const std::vector<std::string>& names) {
  const std::size_t letters = wrong.size() - std::min(wrong.find_first_not_of('-'), wrong.size());
  std::size_t distance = (letters + 1) / 3;
  std::optional<std::string> found;
  for (const std::string& name : names) {
    const std::size_t of_name = edit_distance(wrong, name);
    if (found ? of_name >= distance : of_name > distance) continue;
    found = name;
    distance = of_name;
  }
  return found;
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names,
                         const std::string& advice) {
  const auto name = nearest(wrong, names);
  if (name) return "; did you mean '" + *name + "'?";
  return advice.empty() ? "" : "; " + advice;
}

}  // namespace tersewire::apps
