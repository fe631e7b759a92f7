// A run's numbers of the moment, as Prometheus fetches them.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/numbers/observed_kinds.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

class PrometheusText;

// Any threads.
class RunNumbers {
 public:
  void set(const trainer::StepReport& report);
  void set(const trainer::Observation& observation);

  // Nothing before the first step.
  [[nodiscard]] std::string text() const;

 private:
  void add_step(PrometheusText& text) const;
  void add_observation(PrometheusText& text) const;

  mutable std::mutex mutex_;
  std::optional<trainer::StepReport> report_;
  trainer::StepReport last_;  // the last step alone
  std::optional<double> test_accuracy_;
  std::vector<ObservedKind> kinds_;
};

}  // namespace tersewire::apps
