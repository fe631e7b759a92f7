// tersewire train: the main job.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/command.h"
#include "apps/run_directory.h"
#include "apps/train_report.h"
#include "trainer/models/models.h"
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
  tersewire train --exchange ring --codec int8      no servers: every worker keeps the model
  tersewire train --optimizer adam --lr 0.001 --schedule polynomial --ema 0.999
  mpirun -n 5 tersewire train --transport mpi       a process a node: 4 workers, then 1 server

A higher s sends less and learns later: with few steps, or at a learning rate near the edge of what
fp32 survives, prefer s=1.)";

std::atomic<bool> interrupted{false};
std::atomic<std::int64_t> interrupted_at{0};  // seconds

// The first signal ends the run after the steps under way. A later one ends the program, but not
// one that comes at once: some senders signal a process and then its group.
void on_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!interrupted.exchange(true)) {
    interrupted_at = now.tv_sec;
  } else if (now.tv_sec > interrupted_at + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

// A signal that whoever started the program wants ignored stays ignored.
void end_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

// Writes metrics as they come. Where that fails the run ends after the steps under way, and what
// was measured is still shown.
class MetricsWriter {
 public:
  explicit MetricsWriter(RunDirectory& directory) : directory_(directory) {}

  void add(const trainer::StepReport& report) {
    if (failure_) return;
    try {
      directory_.add_metrics(metrics_json(report));
    } catch (const Error& error) {
      failure_ = error;
      interrupted = true;
    }
  }
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  RunDirectory& directory_;
  std::optional<Error> failure_;
};

struct TrainFlags {
  trainer::TrainConfig config;
  std::string codec = "3lc";
  double epochs = 0;
  std::string out;
  bool json = false;
};

// Every step allocates and frees the same large tensors. By default each goes back to the system
// and is mapped again, which costs a third of the time where several workers do it at once.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

// What was measured is shown and written, each even where the other fails.
void tell(const TrainFlags& flags, const TrainSummary& summary, const RunDirectory& directory,
          std::optional<Error> failure) {
  const auto attempt = [&](const auto& task) {
    try {
      task();
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
  };
  attempt([&] {
    print(flags.json
              ? json_text(summary.json()) + "\n"
              : fmt::format("{}\nThe run is in {}\n", summary.table(), directory.path().string()));
  });
  attempt([&] { directory.write_json("summary.json", summary.json()); });
  if (failure) throw *failure;
}

using Network = std::vector<std::unique_ptr<Transport>>;

// The process of rank 0, which is the one that tells.
void train_and_tell(const TrainFlags& flags, const trainer::DataSplits& data, Network& network) {
  const trainer::TrainConfig& config = flags.config;
  RunDirectory directory =
      flags.out.empty() ? RunDirectory::fresh(config.model) : RunDirectory(flags.out);
  directory.write_json("config.json", config_json(config));
  TrainProgress progress(config.steps);
  MetricsWriter metrics(directory);
  const auto result = trainer::train(config, data,
                                     {.on_step =
                                          [&](const trainer::StepReport& report) {
                                            progress.show(report);
                                            metrics.add(report);
                                          },
                                      .on_event = {},
                                      .stop = &interrupted},
                                     std::move(network));
  progress.finish();
  tell(flags, TrainSummary(config, *result, interrupted && result->steps < config.steps), directory,
       metrics.failure());
}

void run_nodes(TrainFlags& flags, bool epochs_given, Network& network) {
  trainer::TrainConfig& config = flags.config;
  const bool tells = network.front()->rank() == 0;
  as_usage([&] { trainer::check_nodes(config, network.front()->size()); });
  for (const std::string& codec : {flags.codec, config.push_codec, config.pull_codec}) {
    codec_argument(codec);
  }
  const trainer::DataSplits data = as_usage([&] { return trainer::load_data(config); });
  as_usage([&] {
    if (epochs_given) {
      config.steps = trainer::steps_for_epochs(
          flags.epochs, data.train->size(), static_cast<std::size_t>(config.workers), config.batch);
    }
    trainer::check(config, data);
  });
  if (tells) {
    train_and_tell(flags, data, network);
  } else {
    trainer::train(config, data, {.on_step = {}, .on_event = {}, .stop = &interrupted},
                   std::move(network));
  }
}

void run_train(TrainFlags flags, bool push_codec_given, bool pull_codec_given, bool epochs_given) {
  if (!push_codec_given) flags.config.push_codec = flags.codec;
  if (!pull_codec_given) flags.config.pull_codec = flags.codec;
  keep_freed_memory();
  end_on_signals();
  Network network;
  as_usage([&] { network = trainer::join_network(flags.config); });
  const bool tells = network.front()->rank() == 0;
  try {
    run_nodes(flags, epochs_given, network);
  } catch (const std::exception& error) {
    if (!network.empty()) network.front()->abort(error.what());
    if (!tells && told_by_rank_0(error)) {
      throw ToldElsewhere(dynamic_cast<const WrongUsage*>(&error) != nullptr);
    }
    throw;
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
  option("--model", config.model, trainer::model_names().c_str());
  command->add_option("--dropout", config.dropout,
                      "The part of the values that dropout takes out, in place of the model's own");
  option(
      "--data", config.data,
      "embedded, embedded-text, a file of text, or a directory with MNIST's IDX files, CIFAR-10's "
      "binary version or images by class (docs/data.md)");
  option("--augment", config.augment,
         "How images to learn from are varied: none, crop-flip (as ResNet's) or cifarnet");
  option("--workers", config.workers, "Workers")->check(CLI::Range(1, 1024));
  add_exchange_options(*command, config.exchange, config.servers, config.backup_workers,
                       config.local_steps, config.raw_from_all);
  option("--codec", flags->codec, "Codec for both directions; see 'tersewire codecs'");
  CLI::Option* push = command->add_option("--push-codec", config.push_codec, "Codec for gradients");
  CLI::Option* pull =
      command->add_option("--pull-codec", config.pull_codec, "Codec for what servers send");
  option(
      "--policy", config.policy,
      "Rules CONDITION:CODEC; ... that go before the codecs, or small, 3lc-paper, terngrad-paper, "
      "adacomp-paper");
  option("--transport", config.transport,
         "What carries the bytes: in-process (threads), or mpi (processes that mpirun starts)");
  option("--deadline", config.deadline_seconds,
         "Seconds without a message after which a job over mpi ends")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{2592000}));
  CLI::Option* steps = option("--steps", config.steps, "Steps")
                           ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  CLI::Option* epochs =
      command->add_option("--epochs", flags->epochs, "Passes over the data, instead of --steps")
          ->excludes(steps);
  option("--batch", config.batch, "Images a worker and step")->check(CLI::Range(1, 1 << 20));
  option("--lr", config.learning_rate, "Learning rate of the whole job, before it falls");
  command->add_flag("--scale-lr", config.scale_learning_rate,
                    "Multiply the learning rate by the number of workers");
  option("--schedule", config.schedule,
         "How the learning rate falls: constant, cosine, polynomial, step or exponential, with "
         "parameters (docs/training.md)");
  option("--warm-up", config.warm_up_steps,
         "Steps in which the learning rate rises from that of one worker")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  option("--optimizer", config.optimizer, "sgd, or adam, as adam:beta1=0.9,beta2=0.999,eps=1e-8");
  option("--momentum", config.momentum, "Momentum of sgd, from 0 to below 1");
  option("--weight-decay", config.weight_decay, "Weight decay");
  option("--l1", config.l1, "Factor of the values' signs that are added to the gradients");
  option("--ema", config.ema,
         "Test the exponential moving average of the parameters with this decay; 0: the last");
  option("--seed", config.seed, "Of the weights, the order of the data and the embedded images")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "must not be negative" : "";
      });
  command->add_option("--out", flags->out, "Directory for the run (default: a new one in runs/)");
  command->add_flag("--json", flags->json, "Print the summary alone, as JSON, on stdout");
  command->callback([flags, push, pull, epochs] {
    run_train(*flags, push->count() > 0, pull->count() > 0, epochs->count() > 0);
  });
}

}  // namespace tersewire::apps
