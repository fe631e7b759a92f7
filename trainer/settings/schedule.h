// How the learning rate changes over a run: a pure function of the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tersewire::trainer {

// Immutable; any thread.
class Schedule {
 public:
  // What it is a schedule of.
  struct Run {
    std::uint64_t steps = 1;
    std::uint64_t warm_up = 0;  // steps
    int workers = 1;
  };

  // `text` is NAME or NAME:KEY=VALUE,... where x is the part of the run that is done, 0 to 1:
  //   constant
  //   cosine       end + (1 - end) (1 + cos(pi x)) / 2; end=0.01 (3LC, section 4.3)
  //   polynomial   end + (1 - end) (1 - x)^power; power=0.5, end=0 (TernGrad, section 4)
  //   step         times `factor` at each mark: at=MARK/MARK/..., or once every=MARK; factor=0.1,
  //                at=0.5/0.75 (INCEPTIONN, Table I: factor=0.2,every=2000)
  //   exponential  factor^(step / every), smoothly; factor=0.1, every=0.5
  // A mark below 1 is a part of the run, any other a number of steps.
  //
  // With a warm-up of so many steps all that is multiplied by what rises in a straight line from
  // 1 / workers, the rate of one, to 1 (Goyal et al., 2017, section 2.2).
  //
  // Throws kInvalidArgument for a text that is none of these, and for a warm-up longer than the
  // run.
  Schedule(const std::string& text, const Run& run);

  // The part of the full learning rate with which step `step`, from 0, is taken.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  Run run_;
  std::function<double(double step)> curve_;
};

// The text of that schedule of a run of `steps` for one of `to_steps`: marks given as numbers of
// steps keep their part of the run. Marks beyond the run's end stay numbers of steps.
std::string scaled_schedule(const std::string& text, std::uint64_t steps, std::uint64_t to_steps);

}  // namespace tersewire::trainer
