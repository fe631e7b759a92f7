// Notices a training that has diverged, by its loss.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace tersewire::trainer {

// A training has diverged where its loss is not finite, or has grown tenfold over its best. A loss
// below a hundredth of the first one is as good as that: of what is learned by heart, tenfold is
// little. One that comes back was a spike.
class LossWatch {
 public:
  // The mean loss of the last steps, up to `step`: a single batch may be unlike the others.
  void add(std::uint64_t step, double loss);

  // The step since which it has diverged; nothing where it has not.
  [[nodiscard]] std::optional<std::uint64_t> diverged_step() const;

  // All that it remembers, and the way back: first loss, best, and the step or 0; none before the
  // first loss.
  [[nodiscard]] std::deque<double> state() const;
  void resume(const std::deque<double>& state);

 private:
  double first_ = 0;
  double best_ = 0;
  std::uint64_t diverged_step_ = 0;
  bool begun_ = false;
};

}  // namespace tersewire::trainer
