#include "apps/run/watch/run_numbers.h"

#include <fmt/format.h>

#include <string_view>

#include "apps/run/numbers/step_numbers.h"
#include "apps/run/watch/prometheus_text.h"

namespace tersewire::apps {
namespace {

void begin(PrometheusText& text, const char* metric, const char* help, bool grows) {
  const std::string name = fmt::format("tersewire_{}", metric);
  if (grows) {
    text.begin_counter(name, help);
  } else {
    text.begin_gauge(name, help);
  }
}

}  // namespace

void RunNumbers::set(const trainer::StepReport& report) {
  const std::lock_guard lock(mutex_);
  last_ = between(report_.value_or(trainer::StepReport()), report);
  report_ = report;
}

void RunNumbers::set(const trainer::Observation& observation) {
  std::vector<ObservedKind> kinds = by_kind(observation);
  const std::lock_guard lock(mutex_);
  test_accuracy_ = observation.test_accuracy;
  kinds_ = std::move(kinds);
}

std::string RunNumbers::text() const {
  PrometheusText text;
  const std::lock_guard lock(mutex_);
  if (report_) add_step(text);
  if (test_accuracy_) add_observation(text);
  return text.text();
}

void RunNumbers::add_step(PrometheusText& text) const {
  std::string_view begun;
  for (const StepNumber& number : step_numbers()) {
    if (begun != number.metric) {
      begin(text, number.metric, number.help, number.kind == NumberKind::kTotal);
    }
    begun = number.metric;
    const double value = number.read(number.kind == NumberKind::kOfStep ? last_ : *report_);
    if (number.direction == nullptr) {
      text.add(value);
    } else {
      text.add("direction", number.direction, value);
    }
  }
}

void RunNumbers::add_observation(PrometheusText& text) const {
  begin(text, "test_accuracy_ratio", "Accuracy on the test data in the last observed step, 0 to 1.",
        false);
  text.add(*test_accuracy_);
  for (const KindNumber& number : kind_numbers()) {
    begin(text, number.metric, number.help, false);
    for (const ObservedKind& kind : kinds_) text.add("kind", kind.kind, kind.*number.member);
  }
}

}  // namespace tersewire::apps
