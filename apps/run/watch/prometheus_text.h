// Prometheus' text format for metrics, version 0.0.4.
#pragma once

#include <string>
#include <string_view>

namespace tersewire::apps {

// Names, helps and labels are this program's own: nothing in them needs to be escaped.
class PrometheusText {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  // Begins a metric, whose samples follow.
  void begin_counter(std::string_view name, std::string_view help) { begin(name, help, "counter"); }
  void begin_gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }
  // A sample of it.
  void add(double value);
  void add(std::string_view label, std::string_view of, double value);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);

  std::string name_;
  std::string text_;
};

}  // namespace tersewire::apps
