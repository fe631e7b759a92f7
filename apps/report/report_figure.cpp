#include "apps/report/report_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace tersewire::apps {
namespace {

bool has_number(std::span<const double> row) {
  return std::ranges::any_of(row, [](double value) { return std::isfinite(value); });
}

double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return std::isfinite(value) ? 0 : kNothing;
  if (value == std::floor(value)) return value;
  const double scale = std::pow(10, 6 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void add_group(Figure& figure, std::vector<std::string> key,
               std::vector<std::vector<double>> rows) {
  std::erase_if(
      rows, [](const std::vector<double>& row) { return !has_number(std::span(row).subspan(1)); });
  if (!rows.empty()) figure.groups.push_back({std::move(key), std::move(rows)});
}

void drop_empty_columns(Figure& figure) {
  for (std::size_t i = figure.columns.size(); i-- > 0;) {
    const bool used = std::ranges::any_of(figure.groups, [i](const Group& group) {
      return std::ranges::any_of(
          group.rows, [i](const std::vector<double>& row) { return std::isfinite(row[i]); });
    });
    if (used) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    figure.columns.erase(figure.columns.begin() + at);
    for (Group& group : figure.groups) {
      for (std::vector<double>& row : group.rows) row.erase(row.begin() + at);
    }
  }
}

void round_numbers(Figure& figure) {
  for (Group& group : figure.groups) {
    for (std::vector<double>& row : group.rows) std::ranges::transform(row, row.begin(), rounded);
  }
}

std::string csv(const Figure& figure) {
  std::string text;
  for (const std::string& key : figure.keys) text += csv_text(key) + ",";
  for (const std::string& column : figure.columns) {
    text += csv_text(column) + (&column == &figure.columns.back() ? "\r\n" : ",");
  }
  for (const Group& group : figure.groups) {
    std::string front;
    for (const std::string& key : group.key) front += csv_text(key) + ",";
    for (const std::vector<double>& row : group.rows) {
      text += front;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0) text += ',';
        if (std::isfinite(row[i])) text += fmt::format("{}", row[i]);
      }
      text += "\r\n";
    }
  }
  return text;
}

std::vector<std::size_t> spread(std::size_t count, std::size_t most) {
  std::vector<std::size_t> chosen;
  const std::size_t size = std::min(count, most);
  for (std::size_t i = 0; i < size; ++i) {
    chosen.push_back(size == 1 ? count - 1 : i * (count - 1) / (size - 1));
  }
  return chosen;
}

}  // namespace tersewire::apps
