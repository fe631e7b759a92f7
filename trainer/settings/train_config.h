// What a training job is, and the one table of its settings: a row each, which the command line,
// recipes, checkpoints, the comparison of what nodes were started with, config.json and the report
// read.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tersewire/communicator.h"
#include "trainer/settings/outer_optimizer.h"
#include "trainer/settings/part_values.h"

namespace tersewire::trainer {

// Defaults are those of `tersewire train`.
struct TrainConfig {
  TrainConfig() {
    job.workers = 4;
    job.seed = 1;
  }

  // As the library takes it, without the tensors: those are the model's. `state_steps` is how many
  // steps lie between checkpoints.
  Job job;
  std::string model = "lenet";
  int classes = 0;                // that the model tells apart; 0: as many as the data has
  std::optional<double> dropout;  // in place of the model's own ratio
  std::string data = "embedded";
  std::string augment = "none";  // as load_data() takes it
  bool skip_unreadable = false;  // leaves out images that cannot be read
  std::string transport = "in-process";
  // Of each node's codecs; 0: the cores that this process may use over the nodes of this machine.
  std::size_t threads = 0;
  std::uint64_t steps = 1000;
  std::size_t batch = 16;            // images a worker and step
  double learning_rate = 0.01;       // the global one, which the schedule takes parts of
  bool scale_learning_rate = false;  // multiply it by the number of workers
  std::string schedule = "cosine";   // see Schedule
  std::uint64_t warm_up_steps = 0;
  // sgd or nesterov, or adam or adamw with beta1, beta2 and eps as parameters (adam:beta1=0.9).
  // With local updates it is each worker's own.
  std::string optimizer = "sgd";
  double momentum = 0.9;  // of sgd and nesterov
  // What the learning rate of adam and adamw is multiplied by; nothing: what the codec asks for
  // (Codec::adaptive_rate_gain()), or 1 with local updates, whose gradients are not encoded.
  std::optional<double> rate_gain;
  // Of local updates: what turns the mean of the workers' changes into the shared model's, as
  // outer_optimizer() takes it.
  std::string outer;
  double weight_decay = 1e-4;  // as OptimizerSettings::weight_decay
  double l1 = 0;               // this times each value's sign is added to its gradient
  // The longest that the gradient of a worker's batch may be, as the root of all its squares; a
  // longer one is scaled down to it before it is pushed. 0: any.
  double clip = 0;
  // The decay of the exponential moving average of the parameters that is tested; 0: the
  // parameters themselves are.
  double ema = 0;
  // Codecs that gradients go through beside the training (DryRun), as codec_list() takes them; none
  // where it is empty.
  std::string dry;
  // What takes the codec's place after some of the steps, as later_codec() takes it; empty:
  // nothing.
  std::string later_codec;
  // With codec auto (codec_chooser.h): the most that a worker may send and receive, as
  // budget_bytes_a_day() takes it; empty: any.
  std::string budget;
  // To try what slower machines would do: a step pushes nothing sooner than so long after it began,
  // the last worker's `slowest` times as long.
  double compute_ms = 0;
  double slowest = 1;
  std::uint64_t observe_steps = 0;  // steps between observations; 0: none
  bool keep_going = false;          // on with a loss that is not finite
  // Workers of one attempt may not be there in the next: each one's checkpoint has all that others
  // could go on from, and the first is of the state that it began with.
  bool elastic = false;
};

// What another value of a setting makes of a run, for those that compare runs.
enum class SettingRole : std::uint8_t {
  kTask,    // another task: accuracies and times do not compare
  kDesign,  // another way to do it
  kNeither  // another repeat, length or place of the same design
};

// For whom a value holds, and for how long.
enum class SettingScope : std::uint8_t {
  kRun,      // alike on every node, from the first step to the last
  kAttempt,  // alike on every node; a run that is resumed may have another
  kNode      // each node may have its own
};

struct Setting {
  const char* key;   // on the command line, in recipes and in checkpoints
  std::string help;  // for people
  SettingRole role = SettingRole::kDesign;
  SettingScope scope = SettingScope::kRun;
  const char* json_key = nullptr;  // in config.json; none: the key with _ for -
  std::uint64_t least = 0;         // of numbers
  std::uint64_t most = 0;          // 0: any
  bool shows_default = true;       // false where another setting decides what it is
};

// Members whose texts are words too: Job::servers (colocated), Job::staleness (unbounded) and
// Job::part_values (whole).
template <typename Value>
struct ServersSetting {
  Value& value;
};
template <typename Value>
struct StalenessSetting {
  Value& value;
};
template <typename Value>
struct PartValuesSetting {
  Value& value;
};
// clang 14 deduces nothing of aggregates by itself.
template <typename Value>
ServersSetting(Value&) -> ServersSetting<Value>;
template <typename Value>
StalenessSetting(Value&) -> StalenessSetting<Value>;
template <typename Value>
PartValuesSetting(Value&) -> PartValuesSetting<Value>;

inline constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 40;
inline constexpr int kMostUpdates = 1 << 20;  // before workers exchange
inline constexpr std::uint64_t kMostSeconds = WaitLimits::kLongest.count();
inline constexpr std::size_t kMaxThreads = 256;

// The settings that say how a job's nodes meet, which `bench exchange` has as well. Calls
// visit(Setting, member) for each; `job` may be const.
template <typename JobType, typename Visit>
void visit_exchange_settings(JobType& job, const Visit& visit) {
  using enum SettingRole;
  using enum SettingScope;
  visit(Setting{.key = "workers",
                .help = "Workers",
                .role = kTask,
                .scope = kAttempt,
                .least = 1,
                .most = 1024},
        job.workers);
  visit(Setting{.key = "exchange",
                .help = fmt::format("Which node sends what to whom: one of {} (docs/exchanges.md)",
                                    fmt::join(exchange_names(), ", "))},
        job.exchange);
  visit(Setting{.key = "servers",
                .help = "Servers (default: as many as the exchange needs), or colocated: one on "
                        "every worker's node",
                .scope = kAttempt,
                .most = 1024},
        ServersSetting{job.servers});
  visit(Setting{.key = "backup-workers",
                .help = "Workers whose gradients a step does not have to wait for",
                .most = 1023},
        job.backup_workers);
  visit(Setting{.key = "staleness",
                .help = "Steps by which a worker may be ahead of the slowest, with "
                        "parameter-server and gradient-server, or unbounded; 0: lock-step",
                .most = 1 << 20},
        StalenessSetting{job.staleness});
  visit(
      Setting{.key = "local-steps",
              .help = "Steps over which a worker accumulates gradients before it sends their mean",
              .least = 1,
              .most = 1 << 20},
      job.local_steps);
  visit(
      Setting{
          .key = "raw-from-all",
          .help =
              "If a tensor is not finite on one worker, send it uncompressed from every worker"},
      job.raw_from_all);
  visit(Setting{.key = "part-values",
                .help = "Maximum values per part of a tensor; each part has its own scale and "
                        "residual. whole: one part per tensor"},
        PartValuesSetting{job.part_values});
  visit(Setting{.key = "bucket-bytes",
                .help = "Minimum bytes of gradients per message to one node; a ring splits them "
                        "into one block per worker (default: by workers and model)",
                .least = 1,
                .most = std::uint64_t{1} << 40},
        job.bucket_bytes);
}

// How the model is changed. As below.
template <typename Config, typename Visit>
void visit_descent_settings(Config& config, const Visit& visit) {
  visit(Setting{.key = "lr", .help = "Initial learning rate of the whole job"},
        config.learning_rate);
  visit(Setting{.key = "scale-lr", .help = "Multiply the learning rate by the number of workers"},
        config.scale_learning_rate);
  visit(Setting{.key = "schedule",
                .help = "How the learning rate falls: constant, cosine, polynomial, step or "
                        "exponential, with parameters (docs/training.md)"},
        config.schedule);
  visit(Setting{.key = "warm-up",
                .help = "Steps over which the learning rate rises from that of one worker",
                .json_key = "warm_up_steps",
                .most = kMostSteps},
        config.warm_up_steps);
  visit(Setting{.key = "optimizer",
                .help = "sgd, nesterov, or adam or adamw, as "
                        "adam:beta1=0.9,beta2=0.999,eps=1e-8; lstm and gpt have their own, below"},
        config.optimizer);
  visit(Setting{.key = "rate-gain",
                .help = "Factor of the learning rate of adam and adamw, which makes up for their "
                        "smaller steps with encoded gradients [what the codec needs: s + 0.25 for "
                        "3lc, 1.4 for terngrad and stoch3 with their default clip, 1 for others "
                        "and with --paper]"},
        config.rate_gain);
  visit(Setting{.key = "momentum", .help = "Momentum of sgd and nesterov, from 0 to below 1"},
        config.momentum);
  visit(Setting{.key = "outer",
                .help = "Outer optimizer, which applies the mean model delta of "
                        "--local-updates [" +
                        std::string(default_outer(kMostUpdates)) +
                        "; below 10 steps and with --codec auto " + default_outer(1) +
                        "]; nesterov is DiLoCo's",
                .shows_default = false},
        config.outer);
  visit(Setting{.key = "weight-decay", .help = "Weight decay"}, config.weight_decay);
  visit(Setting{.key = "clip",
                .help = "Clip each worker's gradient to this L2 norm before it is pushed; 0: off"},
        config.clip);
  visit(Setting{.key = "l1",
                .help = "Factor of L1 regularization: the sign of each value, times this, is added "
                        "to its gradient"},
        config.l1);
  visit(Setting{.key = "ema",
                .help = "Test the exponential moving average of the parameters with this decay; 0: "
                        "the parameters themselves"},
        config.ema);
}

// All settings of a job. Calls visit(Setting, member) for each; `config` may be const.
template <typename Config, typename Visit>
void visit_settings(Config& config, const Visit& visit) {
  using enum SettingRole;
  using enum SettingScope;
  auto& job = config.job;
  visit(Setting{.key = "model", .help = "Network, one of those listed below", .role = kTask},
        config.model);
  visit(Setting{.key = "dropout", .help = "Dropout rate, instead of the model's own"},
        config.dropout);
  visit(Setting{.key = "data",
                .help = "embedded, embedded-text, a file of text, or a directory with MNIST's IDX "
                        "files, CIFAR-10's binary version or images by class (docs/data.md)",
                .role = kTask,
                .scope = kNode},
        config.data);
  visit(
      Setting{.key = "augment",
              .help = "Augmentation of training images: none, crop-flip (as ResNet's) or cifarnet",
              .role = kTask},
      config.augment);
  visit(Setting{.key = "skip-unreadable",
                .help = "Leave out images by class that cannot be read; otherwise they are named, "
                        "and nothing is trained",
                .role = kTask},
        config.skip_unreadable);
  visit_exchange_settings(job, visit);
  visit(Setting{.key = "local-updates",
                .help = "Steps that each worker takes on its own, with its own --optimizer, before "
                        "workers exchange their model deltas (with --codec auto: 1 or this many); "
                        "0: exchange gradients",
                .most = kMostUpdates},
        job.local_updates);
  visit(Setting{.key = "fragments",
                .help = "Groups of parts of the model that take turns in --local-updates, so that "
                        "each exchange is this many times smaller",
                .least = 1,
                .most = 1 << 20},
        job.fragments);
  visit(
      Setting{.key = "delay",
              .help = "Steps that workers of --local-updates take while an exchange is in progress",
              .most = 1 << 20},
      job.delay);
  visit(
      Setting{
          .key = "budget",
          .help =
              "With --codec auto: maximum traffic that a worker may send and receive, as 2GB/day",
          .scope = kAttempt,
          .shows_default = false},
      config.budget);
  visit(Setting{.key = "push-codec", .help = "Codec for gradients", .shows_default = false},
        job.push_codec);
  visit(Setting{.key = "pull-codec",
                .help = "Codec for what servers send: --codec if not given, without a residual for "
                        "mean gradients of 3lc under adam and adamw",
                .shows_default = false},
        job.pull_codec);
  visit(Setting{.key = "later-codec",
                .help = "WHEN:CODEC, which replaces --codec after a share or a number of the "
                        "steps: 40%:3lc:s=1.75, 400:3lc:s=1.75 (docs/training.md)",
                .shows_default = false},
        config.later_codec);
  visit(Setting{.key = "policy",
                .help = "Rules CONDITION:CODEC; ... that override the codecs, or auto, small, "
                        "light, 3lc-paper, terngrad-paper, adacomp-paper"},
        job.policy);
  visit(Setting{.key = "dry",
                .help =
                    "Codecs, as 3lc,adacomp:bin=500, to try on one worker's gradients in 3 % of "
                    "the time, without sending what they encode: reports what each would save and "
                    "lose. The run itself sends fp32 unless --codec is given (docs/predict.md)",
                .role = kNeither,
                .scope = kNode,
                .shows_default = false},
        config.dry);
  visit(Setting{.key = "transport",
                .help = "What carries the bytes: in-process (threads; "
                        "in-process:rate=20mbit,delay=40ms,jitter=5ms,loss=0.1%,seed=1 models "
                        "their links), mpi (processes that mpirun starts), or grpc (threads "
                        "over loopback; grpc:hub=HOST:PORT,certs=DIR,direct=HOST:PORT: one node "
                        "of a hub's job, docs/deploying.md)",
                .role = kNeither,
                .scope = kNode},
        config.transport);
  visit(
      Setting{
          .key = "threads",
          .help =
              "Codec threads per node [0: available cores divided by the nodes on this machine, "
              "or by all nodes of the job where no launcher counts those]",
          .role = kNeither,
          .scope = kNode,
          .most = kMaxThreads},
      config.threads);
  visit(Setting{.key = "deadline",
                .help = "Seconds of silence after which a node counts as dead and a job of several "
                        "processes ends",
                .role = kNeither,
                .scope = kNode,
                .json_key = "deadline_seconds",
                .least = 1,
                .most = kMostSeconds},
        job.deadline);
  visit(Setting{.key = "progress-limit",
                .help = "Seconds without a message after which a job ends although all nodes are "
                        "alive; more than a step, a test or a checkpoint takes",
                .role = kNeither,
                .scope = kNode,
                .json_key = "progress_limit_seconds",
                .least = 1,
                .most = kMostSeconds},
        job.progress_limit);
  visit(Setting{.key = "steps", .help = "Steps", .role = kNeither, .least = 1, .most = kMostSteps},
        config.steps);
  visit(Setting{.key = "batch",
                .help = "Samples per worker and step",
                .role = kTask,
                .least = 1,
                .most = 1 << 20},
        config.batch);
  visit_descent_settings(config, visit);
  visit(Setting{.key = "compute-ms",
                .help = "Minimum step time in milliseconds, to simulate slower machines",
                .role = kTask,
                .most = 100'000'000},
        config.compute_ms);
  visit(Setting{.key = "slowest",
                .help = "Factor on --compute-ms for the last worker",
                .role = kTask,
                .least = 1,
                .most = 1000},
        config.slowest);
  visit(Setting{.key = "keep-going",
                .help = "Continue after a loss that is not finite; otherwise it ends the run",
                .scope = kAttempt},
        config.keep_going);
  visit(Setting{.key = "elastic",
                .help = "Continue with the remaining nodes when some die, leave (SIGTERM) or join, "
                        "over --transport grpc:hub=HOST:PORT,name=NAME[,role=server] "
                        "(docs/deploying.md)",
                .role = kNeither,
                .scope = kAttempt},
        config.elastic);
  visit(Setting{.key = "seed",
                .help = "Seed of the weights, the order of the data and the embedded images",
                .role = kNeither},
        job.seed);
  visit(Setting{.key = "checkpoint-steps",
                .help = "Steps between checkpoints; 0: none",
                .role = kNeither,
                .scope = kAttempt,
                .most = kMostSteps},
        job.state_steps);
  visit(Setting{.key = "observe-steps",
                .help = "Steps between observations of test accuracy, codecs, residuals and "
                        "gradients; 0: none",
                .role = kNeither,
                .scope = kNode,
                .most = kMostSteps},
        config.observe_steps);
}

// The row of a key that there is, for a command that has this setting and few others.
inline Setting setting_named(std::string_view key) {
  std::optional<Setting> found;
  const TrainConfig config;
  visit_settings(config, [&](const Setting& setting, const auto& /*member*/) {
    if (setting.key == key) found = setting;
  });
  return found.value();
}

// In config.json.
inline std::string json_key_of(const Setting& setting) {
  if (setting.json_key != nullptr) return setting.json_key;
  std::string key = setting.key;
  std::ranges::replace(key, '-', '_');
  return key;
}

// A member as the command line takes it, and exact: numbers are read back to the bit. Empty where
// an optional one has no value; times are whole seconds.
inline std::string setting_value(const std::string& value) { return value; }
inline std::string setting_value(bool value) { return value ? "true" : "false"; }
inline std::string setting_value(int value) { return fmt::format("{}", value); }
inline std::string setting_value(std::uint64_t value) { return fmt::format("{}", value); }
inline std::string setting_value(double value) { return fmt::format("{}", value); }
inline std::string setting_value(std::chrono::milliseconds value) {
  return fmt::format("{}", std::chrono::duration_cast<std::chrono::seconds>(value).count());
}
template <typename Value>
std::string setting_value(const std::optional<Value>& value) {
  return value ? setting_value(*value) : "";
}
// In the place of a number of servers: Job::kColocated.
inline constexpr const char* kColocatedText = "colocated";
inline std::string setting_value(ServersSetting<const std::optional<int>> setting) {
  if (setting.value == Job::kColocated) return kColocatedText;
  return setting_value(setting.value);
}
// Job::kUnbounded.
inline constexpr const char* kUnboundedText = "unbounded";
inline std::string setting_value(StalenessSetting<const int> setting) {
  if (setting.value == Job::kUnbounded) return kUnboundedText;
  return setting_value(setting.value);
}
inline std::string setting_value(PartValuesSetting<const std::size_t> setting) {
  return part_values_text(setting.value);
}

}  // namespace tersewire::trainer
