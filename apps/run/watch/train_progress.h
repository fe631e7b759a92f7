// What `tersewire train` tells while it runs.
#pragma once

#include <cstdint>

#include "apps/cli/progress_line.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

// On stderr. One thread at a time.
class TrainProgress {
 public:
  // `before`: steps that a resumed run does not take again.
  TrainProgress(std::uint64_t steps, std::uint64_t before)
      : steps_(steps), before_(before), line_(steps) {}

  void show(const trainer::StepReport& report);
  // Ends the bar's line.
  void finish() { line_.finish(); }

 private:
  void smooth(const trainer::StepReport& report);

  std::uint64_t steps_;
  std::uint64_t before_;
  ProgressLine line_;
  double loss_ = 0;
  double accuracy_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace tersewire::apps
