#include "apps/cli/quantities.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

namespace tersewire::apps {
namespace {

struct Unit {
  const char* name;
  double size;
};

// `units` from the smallest to the largest; what rounds to 1 of a unit is shown in it.
std::string in_units(double value, std::initializer_list<Unit> units, int digits) {
  const double least = 1 - 0.5 * std::pow(10, -digits);
  const Unit* unit = units.begin();
  while (unit + 1 != units.end() && value >= least * unit[1].size) ++unit;
  return fmt::format("{} {}", digits_text(value / unit->size, digits), unit->name);
}

}  // namespace

std::string digits_text(double value, int digits) {
  if (value < std::pow(10, digits) - 0.5) return fmt::format("{:.{}g}", value, digits);
  return fmt::format("{:.0f}", value);
}

std::string decimals_text(double value, int decimals) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}f}", value, decimals);
}

std::string bytes_text(double bytes) {
  return in_units(bytes, {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}, 3);
}

std::string seconds_text(double seconds) {
  // What is shown is rounded before it is split.
  if (seconds < 59.95) return in_units(seconds, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, 3);
  const double whole = std::round(seconds);
  if (whole < 3600) {
    return fmt::format("{:.0f} min {:.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
  }
  const double minutes = std::round(seconds / 60);
  const double hours = std::floor(minutes / 60);
  if (hours < 48) return fmt::format("{:.0f} h {:.0f} min", hours, std::fmod(minutes, 60));
  return fmt::format("{:.1f} days", hours / 24);
}

std::string rate_text(double bits_per_second, int digits) {
  return in_units(bits_per_second,
                  {{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}}, digits);
}

}  // namespace tersewire::apps
