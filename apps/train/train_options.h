// The command line of `tersewire train`: its options, with what defaults, a recipe or a checkpoint
// say where it does not.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "apps/cli/settings.h"
#include "apps/run/checkpoint_directory.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/settings/train_config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tersewire::apps {

struct TrainFlags {
  trainer::TrainConfig config;
  std::string recipe;
  std::string defaults;  // what apply_defaults() has to say of them
  bool list_recipes = false;
  bool transport_given = false;    // on the command line
  bool pull_codec_given = false;   // the same
  bool elastic_given = false;      // the same
  std::string codec = "3lc";       // for both directions
  std::string replay_decisions;    // decisions.json of a run
  trainer::CodecDecisions replay;  // what it holds
  std::uint64_t warm_up_of = 0;    // as ModelInfo's, where the model says how long it is
  bool paper = false;
  std::string link = "100mbit";  // that a dry run's verdict is for
  std::optional<double> epochs;  // in place of config.steps
  std::string out;
  bool json = false;
  std::optional<std::string> tensorboard;             // a directory for its files
  std::optional<std::string> metrics;                 // where they are served
  std::string notice;                                 // as NoticeWatch takes it
  std::string resume;                                 // the directory of a run that goes on
  bool resume_or_start = false;                       // that is `out`, once it has a checkpoint
  std::optional<CheckpointDirectory::Found> resumed;  // where it does
  Settings settings;
};

// Registers the command; `act` gets what its command line says, where that asks for a run.
void add_train_options(CLI::App& app, const std::function<void(TrainFlags&)>& act);

}  // namespace tersewire::apps
