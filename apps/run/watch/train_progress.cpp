#include "apps/run/watch/train_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/quantities.h"
#include "apps/run/numbers/traffic_ratios.h"

namespace tersewire::apps {

void TrainProgress::smooth(const trainer::StepReport& report) {
  // A batch is a small sample: the mean of the last few dozen says more.
  const double weight = seen_++ == 0 ? 1 : 0.03;
  loss_ += weight * (report.loss - loss_);
  accuracy_ += weight * (report.accuracy - accuracy_);
}

void TrainProgress::show(const trainer::StepReport& report) {
  smooth(report);
  if (!line_.is_due(report.step)) return;
  const Counters& counters = report.counters;
  const double left = ratio(report.seconds, static_cast<double>(report.step - before_)) *
                      static_cast<double>(steps_ - std::min(steps_, report.step));
  // Bytes count when they arrive, values when they are decoded: in a first step those of no tensor.
  const bool pulled = counters.pulled_values > 0;
  std::string traffic =
      pulled ? fmt::format("pushed {:.3f} and pulled {:.3f} bits per value",
                           bits_per_value(counters.pushed_bytes, counters.pushed_values),
                           bits_per_value(counters.pulled_bytes, counters.pulled_values))
             : "nothing pulled";
  if (report.diverged_step) {
    traffic += fmt::format("  diverged at step {}", *report.diverged_step);
  } else if (pulled) {
    traffic += fmt::format("  {:.0f}x smaller", compression_ratio(counters));
  }
  const std::string line =
      fmt::format("step {}/{}  loss {}  accuracy {:.1f} %  {}  {} left", report.step, steps_,
                  decimals_text(loss_, 3), 100 * accuracy_, traffic, clock_text(left));
  line_.show(report.step, line);
}

}  // namespace tersewire::apps
