// What a command line of `tersewire train` comes to, without training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/loop/train.h"

namespace tersewire::apps {

struct TrainFlags;

// Throws WrongUsage for what makes no sense whatever the data and the model's tensors are, before
// either is loaded.
void check_settings(const TrainFlags& flags);

// Epochs become steps, and the model's warm-up some of them, and what makes no sense with this data
// is refused: throws WrongUsage.
void settle(TrainFlags& flags, const trainer::DataSplits& data);

// The job's data; complains of what was left out where this process `tells`. Throws WrongUsage too.
trainer::DataSplits load_data(const trainer::TrainConfig& config, bool tells);

// Throws kNotFound where `path` is that of a set that `tersewire data get` would put there, and has
// not.
void check_data_was_got(const std::string& path);

// The options of train, without dashes: those that a recipe may set, and those of one run alone.
std::vector<std::string> train_settings();
std::vector<std::string> train_options_of_one_run();

// One thread. Keeps the data that was last checked against: the cost of the first check.
class TrainCheck {
 public:
  // What `tersewire train ARGUMENTS` would train, epochs turned into steps. Throws as that command
  // does before its first step: WrongUsage for what makes no sense, by itself or with the data, and
  // an Error where data or recipe cannot be read.
  trainer::TrainConfig config_of(std::vector<std::string> arguments);

 private:
  const trainer::DataSplits& data_of(const trainer::TrainConfig& config);

  std::optional<trainer::DataSplits> data_;
  std::string data_key_;
};

}  // namespace tersewire::apps
