// What changes a model: an optimizer with a learning rate that follows a schedule, a part of a
// tensor at a time; and the average over the steps that is tested in the model's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "trainer/loop/train.h"
#include "trainer/models/network.h"
#include "trainer/models/optimizer.h"
#include "trainer/settings/schedule.h"

namespace tersewire::trainer {

// Throws kInvalidArgument for a configuration that Descent would refuse.
void check_descent(const TrainConfig& config);

// TrainConfig::outer, or where it is empty the default: default_outer(), and plain averaging where
// the job chooses how many steps a round has.
std::string outer_text(const TrainConfig& config);

// What Descent takes where the model is owned: with local updates the outer optimizer in place of
// the one that workers have; throws like check_descent() ...
TrainConfig owners_config(const TrainConfig& config);
// ... and what it takes for a worker's own steps.
TrainConfig workers_config(TrainConfig config);

// How many arrays as large as the model Descent keeps beside it. Throws like check_descent().
std::size_t arrays_of_descent(const TrainConfig& config);

// All that Descent keeps of one part from step to step; the part's values are the network's.
struct PartDescentState {
  std::uint64_t steps = 0;  // taken
  // By name, each as long as the part: those of the optimizer, and "average" where one is kept.
  std::map<std::string, std::vector<float>> buffers;
};

// Different parts may be changed by different threads at once.
class Descent {
 public:
  // What a step's learning rate is multiplied by; steps are counted from 1.
  using RateGain = std::function<double(std::uint64_t step)>;

  // Works in the network's own memory, which must outlive it, cut into the parts of its job. Throws
  // like check_descent().
  Descent(
      const TrainConfig& config, const Network& network, const std::vector<Part>& parts,
      RateGain gain = [](std::uint64_t) { return 1.0; });

  // One step of a part, by its number: what that changed goes to `delta`.
  void take_step(std::size_t part, std::span<const float> gradient, std::span<float> delta);
  // The same for a replica, whose values stay as they are: what pulls them adds `delta`.
  void propose_step(std::size_t part, std::span<const float> gradient, std::span<float> delta);

  [[nodiscard]] std::uint64_t steps_taken(std::size_t part) const { return taken_[part]; }

  // A copy, and its way back: with the same values in the network, the steps that follow are those
  // that would have followed, to the bit. Throws kFailedPrecondition, and changes nothing, where
  // the state is that of another optimizer or of a part of another size.
  [[nodiscard]] PartDescentState state(std::size_t part) const;
  void resume(std::size_t part, const PartDescentState& saved);

  // With TrainConfig::ema, the exponential moving average of a part's values, which begins as
  // they do; else nothing. After step t it moves towards them by 1 - min(ema, (1 + t) / (10 + t)),
  // so that a short run's does not stay where it began.
  [[nodiscard]] std::span<float> average(std::size_t part);
  // Exchanges values and averages of the whole model, and by another call back.
  void swap_averages();

 private:
  // Changes the values; those before the step go to `before`.
  void advance(std::size_t part, std::span<const float> gradient, std::span<float> before);
  void update_average(std::size_t part);

  double rate_;
  RateGain gain_;
  Schedule schedule_;
  std::uint64_t steps_between_;  // two changes of the model
  double ema_;
  // By part, as all that follow.
  std::vector<std::string> names_;
  std::vector<std::span<float>> values_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<std::vector<float>> averages_;
  std::vector<std::uint64_t> taken_;  // steps
  // What a state is made of.
  std::vector<std::map<std::string, std::span<float>>> buffers_;
};

}  // namespace tersewire::trainer
