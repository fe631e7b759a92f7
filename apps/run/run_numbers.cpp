#include "apps/run/run_numbers.h"

#include "apps/run/prometheus_text.h"
#include "apps/run/traffic_ratios.h"

namespace tersewire::apps {

void RunNumbers::set(const trainer::StepReport& report) {
  const std::lock_guard lock(mutex_);
  step_seconds_ = report.seconds - (report_ ? report_->seconds : 0);
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
  if (report_) {
    add_step(text);
    add_traffic(text);
  }
  if (test_accuracy_) add_observation(text);
  return text.text();
}

void RunNumbers::add_step(PrometheusText& text) const {
  const Counters& counters = report_->counters;
  text.begin_gauge("tersewire_step", "Last step that worker 0 ended.");
  text.add(static_cast<double>(report_->step));
  text.begin_gauge("tersewire_loss", "Loss of the last batch.");
  text.add(report_->loss);
  text.begin_gauge("tersewire_batch_accuracy_ratio", "Accuracy on the last batch, 0 to 1.");
  text.add(report_->accuracy);
  text.begin_gauge("tersewire_step_seconds", "Time that the last step took.");
  text.add(step_seconds_);
  text.begin_counter("tersewire_training_seconds_total", "Time since training began.");
  text.add(report_->seconds);
  text.begin_counter("tersewire_wait_seconds_total",
                     "Time that worker 0 stood waiting for what had not arrived.");
  text.add(counters.wait_seconds);
  text.begin_counter("tersewire_codec_seconds_total",
                     "Processor time that worker 0 spent on encoding and decoding.");
  text.add(counters.encode_seconds + counters.decode_seconds);
}

void RunNumbers::add_traffic(PrometheusText& text) const {
  const Counters& counters = report_->counters;
  text.begin_counter("tersewire_traffic_bytes_total",
                     "Bytes of whole messages that worker 0 pushed and pulled.");
  text.add("direction", "push", static_cast<double>(counters.pushed_bytes));
  text.add("direction", "pull", static_cast<double>(counters.pulled_bytes));
  text.begin_counter("tersewire_values_total", "Values that those bytes stand for.");
  text.add("direction", "push", static_cast<double>(counters.pushed_values));
  text.add("direction", "pull", static_cast<double>(counters.pulled_values));
  text.begin_gauge("tersewire_bits_per_value", "Bits that a value took, on average.");
  text.add("direction", "push", bits_per_value(counters.pushed_bytes, counters.pushed_values));
  text.add("direction", "pull", bits_per_value(counters.pulled_bytes, counters.pulled_values));
  text.begin_gauge("tersewire_compression_ratio",
                   "How many times smaller the traffic was than 32 bits a value.");
  text.add(compression_ratio(counters));
  text.begin_counter("tersewire_not_finite_tensors_total",
                     "Tensors that travelled uncompressed for a NaN or an infinity.");
  text.add(static_cast<double>(counters.not_finite_tensors));
  text.begin_counter("tersewire_unused_pushes_total",
                     "Pushes that came too late and went back to the residual.");
  text.add(static_cast<double>(counters.unused_pushes));
}

void RunNumbers::add_observation(PrometheusText& text) const {
  text.begin_gauge("tersewire_test_accuracy_ratio",
                   "Accuracy on the test data in the last observed step, 0 to 1.");
  text.add(*test_accuracy_);
  text.begin_gauge("tersewire_residual_norm",
                   "Norm of worker 0's residuals in the last observed step, by kind of tensor.");
  for (const ObservedKind& kind : kinds_) text.add("kind", kind.kind, kind.residual_norm);
  text.begin_gauge("tersewire_relative_error_ratio",
                   "Mean relative error of what is decoded of them.");
  for (const ObservedKind& kind : kinds_) text.add("kind", kind.kind, kind.relative_error);
  text.begin_gauge("tersewire_observed_bits_per_value", "Bits that a value of them took.");
  for (const ObservedKind& kind : kinds_) text.add("kind", kind.kind, kind.bits_per_value);
}

}  // namespace tersewire::apps
