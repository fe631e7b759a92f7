#include "apps/run/watch/prometheus_text.h"

#include <fmt/format.h>

#include <cmath>

namespace tersewire::apps {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void PrometheusText::begin(std::string_view name, std::string_view help, std::string_view type) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void PrometheusText::add(double value) {
  text_ += fmt::format("{} {}\n", name_, number_text(value));
}

void PrometheusText::add(std::string_view label, std::string_view of, double value) {
  text_ += fmt::format("{}{{{}=\"{}\"}} {}\n", name_, label, of, number_text(value));
}

}  // namespace tersewire::apps
