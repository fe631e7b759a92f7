// tersewire train: the main job.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <memory>

#include "apps/command.h"
#include "apps/run_directory.h"
#include "apps/train_report.h"
#include "trainer/train.h"

namespace tersewire::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tersewire train                                   LeNet on the embedded images, 4 workers, 3LC
  tersewire train --codec 3lc:s=1.75 --steps 2000
  tersewire train --codec fp32 --json > fp32.json   the baseline to compare with
  tersewire train --data mnist/ --workers 10 --epochs 5 --model lenet
  tersewire train --push-codec 3lc:s=1.9 --pull-codec 3lc --backup-workers 1
  tersewire train --policy 'kind=bias:fp32; last:fp32; *:3lc:s=1.5'

A higher s sends less and learns later: with few steps, or at a learning rate near the edge of what
fp32 survives, prefer s=1.)";

std::atomic<bool> interrupted{false};

// The first Ctrl-C ends the run after the steps under way, a second one ends the program.
void end_on_ctrl_c() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct TrainFlags {
  trainer::TrainConfig config;
  std::string codec = "3lc";
  double epochs = 0;
  std::string out;
  bool json = false;
};

void check_usage(const trainer::TrainConfig& config, const trainer::DataSplits& data) {
  try {
    trainer::check(config, data);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) throw WrongUsage(error.what());
    throw;
  }
}

// Every step allocates and frees the same large tensors. By default each goes back to the system
// and is mapped again, which costs a third of the time where several workers do it at once.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

void run_train(TrainFlags flags, bool push_codec_given, bool pull_codec_given) {
  trainer::TrainConfig& config = flags.config;
  if (!push_codec_given) config.push_codec = flags.codec;
  if (!pull_codec_given) config.pull_codec = flags.codec;
  for (const std::string& codec : {config.push_codec, config.pull_codec}) codec_argument(codec);

  keep_freed_memory();
  end_on_ctrl_c();
  const trainer::DataSplits data = trainer::load_data(config.data, config.seed);
  if (flags.epochs > 0) {
    config.steps = trainer::steps_for_epochs(
        flags.epochs, data.train.size(), static_cast<std::size_t>(config.workers), config.batch);
  }
  check_usage(config, data);
  RunDirectory directory(flags.out.empty() ? RunDirectory::fresh_path(config.model)
                                           : std::filesystem::path(flags.out));
  directory.write_json("config.json", config_json(config));

  TrainProgress progress(config.steps, isatty(STDERR_FILENO) != 0);
  const trainer::TrainResult result = train(config, data,
                                            {.on_step =
                                                 [&](const trainer::StepReport& report) {
                                                   progress.show(report);
                                                   directory.add_metrics(metrics_json(report));
                                                 },
                                             .on_event = {},
                                             .stop = &interrupted});
  progress.finish();

  const TrainSummary summary(config, result, interrupted && result.steps < config.steps);
  directory.write_json("summary.json", summary.json());
  if (flags.json) {
    fmt::print("{}\n", summary.json().dump(2));
  } else {
    fmt::print("{}\nThe run is in {}\n", summary.table(), directory.path().string());
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "train",
      "Train a network with several workers, all traffic compressed, and show what it saved");
  command->footer(kExamples);
  auto flags = std::make_shared<TrainFlags>();
  trainer::TrainConfig& config = flags->config;
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  option("--model", config.model, "mlp (784-392-50-10) or lenet");
  option("--data", config.data,
         "embedded, or a directory with MNIST's IDX files, gzipped or plain");
  option("--workers", config.workers, "Workers")->check(CLI::Range(1, 1024));
  option("--servers", config.servers, "Parameter servers")->check(CLI::Range(1, 1024));
  option("--backup-workers", config.backup_workers,
         "Workers whose gradients a step need not wait for")
      ->check(CLI::Range(0, 1023));
  option("--codec", flags->codec, "Codec for both directions; see 'tersewire codecs'");
  CLI::Option* push = command->add_option("--push-codec", config.push_codec, "Codec for gradients");
  CLI::Option* pull =
      command->add_option("--pull-codec", config.pull_codec, "Codec for model deltas");
  option("--policy", config.policy,
         "Rules CONDITION:CODEC; ... that go before the codecs, or small, or 3lc-paper");
  option("--exchange", config.exchange, "Which node sends what to whom: parameter-server");
  option("--transport", config.transport, "What carries the bytes: in-process");
  CLI::Option* steps = option("--steps", config.steps, "Steps")
                           ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command->add_option("--epochs", flags->epochs, "Passes over the data, instead of --steps")
      ->check(CLI::PositiveNumber)
      ->excludes(steps);
  option("--batch", config.batch, "Images a worker and step")->check(CLI::Range(1, 1 << 20));
  option("--lr", config.learning_rate, "Learning rate at the start, of the whole job")
      ->check(CLI::PositiveNumber);
  command->add_flag("--scale-lr", config.scale_learning_rate,
                    "Multiply the learning rate by the number of workers");
  option("--momentum", config.momentum, "Momentum")->check(CLI::Range(0.0, 0.999999));
  option("--weight-decay", config.weight_decay, "Weight decay")->check(CLI::NonNegativeNumber);
  option("--seed", config.seed, "Of the weights, the order of the data and the embedded images");
  command->add_option("--out", flags->out, "Directory for the run (default: a new one in runs/)");
  command->add_flag("--json", flags->json, "Print the summary alone, as JSON, on stdout");
  command->callback(
      [flags, push, pull] { run_train(*flags, push->count() > 0, pull->count() > 0); });
}

}  // namespace tersewire::apps
