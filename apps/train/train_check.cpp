#include "apps/train/train_check.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/cli/plain_numbers.h"
#include "apps/data/data_get.h"
#include "apps/train/recipe.h"
#include "apps/train/train_options.h"
#include "trainer/chooser/codec_chooser.h"

namespace tersewire::apps {

void check_settings(const TrainFlags& flags) {
  const Job& job = flags.config.job;
  for (const std::string& codec : {flags.codec, job.push_codec}) {
    if (codec == trainer::kAutoPullWithoutResidual) {
      throw WrongUsage("codec auto:ef=off is for --pull-codec alone; use --codec auto");
    }
    if (codec != trainer::kAutoCodec) codec_argument(codec);
  }
  if (!trainer::is_auto_pull(job.pull_codec)) codec_argument(job.pull_codec);
  as_usage([&] { trainer::check_settings(flags.config); });
  if (flags.pull_codec_given && !trainer::servers_encode(flags.config)) {
    throw WrongUsage("--pull-codec is for what servers send, and exchange " + job.exchange +
                     " has none; omit it");
  }
}

void settle(TrainFlags& flags, const trainer::DataSplits& data) {
  trainer::TrainConfig& config = flags.config;
  as_usage([&] {
    if (flags.epochs) {
      config.steps =
          trainer::steps_for_epochs(*flags.epochs, data.train->size(),
                                    static_cast<std::size_t>(config.job.workers), config.batch);
    }
    if (flags.warm_up_of > 0) config.warm_up_steps = config.steps / flags.warm_up_of;
    trainer::check(config, data);
  });
}

trainer::DataSplits load_data(const trainer::TrainConfig& config, bool tells) {
  trainer::DataSplits data = as_usage([&] { return trainer::load_data(config); });
  for (const std::string& file : data.unreadable) {
    if (tells) complain(fmt::format("left out: {}\n", file));
  }
  return data;
}

void check_data_was_got(const std::string& path) {
  const std::string name = path.substr(0, path.find('/'));
  std::error_code error;
  if (std::ranges::find(known_data_sets(), name, &DataSet::name) == known_data_sets().end() ||
      std::filesystem::exists(path, error) || error) {
    return;
  }
  throw Error(ErrorCode::kNotFound, fmt::format("there is no {} in this directory; run 'tersewire "
                                                "data get {}', or name its directory with --data",
                                                path, name));
}

trainer::TrainConfig TrainCheck::config_of(std::vector<std::string> arguments) {
  trainer::TrainConfig config;
  CLI::App app;
  add_train_options(app, [&](TrainFlags& flags) {
    check_settings(flags);
    settle(flags, data_of(flags.config));
    config = flags.config;
  });
  take_plain_numbers(app);
  arguments.insert(arguments.begin(), "train");
  // CLI11 takes them from the back.
  std::ranges::reverse(arguments);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw WrongUsage(error.what());
  }
  return config;
}

// Of runs that have the same.
const trainer::DataSplits& TrainCheck::data_of(const trainer::TrainConfig& config) {
  check_data_was_got(config.data);
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", config.data, config.model,
                                      config.augment, config.skip_unreadable, config.job.seed);
  if (!data_ || key != data_key_) {
    data_.reset();
    data_ = load_data(config, false);
    data_key_ = key;
  }
  return *data_;
}

std::vector<std::string> train_settings() {
  CLI::App app;
  add_train_options(app, [](TrainFlags& /*flags*/) {});
  return setting_names(*app.get_subcommand("train"));
}

std::vector<std::string> train_options_of_one_run() {
  CLI::App app;
  add_train_options(app, [](TrainFlags& /*flags*/) {});
  return setting_names(*app.get_subcommand("train"), false);
}

}  // namespace tersewire::apps
