// tersewire train: the main job.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/cli/plain_numbers.h"
#include "apps/cli/settings.h"
#include "apps/data/data_get.h"
#include "apps/files/new_file.h"
#include "apps/files/read_file.h"
#include "apps/files/tensor_file.h"
#include "apps/run/checkpoint_directory.h"
#include "apps/run/metrics_writer.h"
#include "apps/run/run_directory.h"
#include "apps/run/run_files.h"
#include "apps/run/step_listener.h"
#include "apps/run/train_report.h"
#include "apps/train/recipe.h"
#include "apps/train/train_check.h"
#include "trainer/memory_estimate.h"
#include "trainer/models/models.h"
#include "trainer/outer_optimizer.h"
#include "trainer/train.h"

namespace tersewire::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tersewire train                                   LeNet on the embedded images, 4 workers, 3LC
  tersewire train --codec 3lc:s=1.75 --steps 2000
  tersewire train --codec fp32 --json > fp32.json   the baseline to compare with
  tersewire train --data mnist/ --workers 10 --epochs 5 --model lenet
  tersewire train --push-codec 3lc:s=1.9 --pull-codec 3lc --backup-workers 1
  tersewire train --codec 3lc:s=1.75 --paper       as 3LC was published
  tersewire train --policy 'kind=bias:fp32; last:fp32; *:3lc:s=1.5'
  tersewire train --exchange ring --codec int8      no servers: every worker keeps the model
  tersewire train --optimizer adam --lr 0.001 --schedule polynomial --ema 0.999
  tersewire train --local-updates 50 --codec int8   workers learn by themselves for 50 steps
  mpirun -n 5 tersewire train --transport mpi       a process a node: 4 workers, then 1 server
  tersewire train --list-recipes                    experiments of the papers, under a name
  tersewire train --recipe terngrad-lenet --codec fp32   one of them, and what to change in it
  tersewire train --out long --checkpoint-steps 100      saves what it would lose in a restart
  tersewire train --resume long                          goes on from the last checkpoint
  tersewire train --resume-or-start --out long --checkpoint-steps 100    both, for a restart loop

3lc saves 30x and more, 3lc:s=1.75 60x and more; --paper takes codecs as their papers print them.)";

std::string models_text() {
  std::string text = "\n\nModels, the samples they take, and who trains them:";
  for (const trainer::ModelInfo& model : trainer::models()) {
    text += fmt::format(
        "\n  {:<11}{:<15}{}", model.name,
        model.takes.text ? "text" : fmt::format("{}", fmt::join(model.takes.shape, " x ")),
        model.description);
  }
  return text;
}

// The setting of a checkpoint that names the recipe: no option has this name.
constexpr const char* kRecipe = "recipe of the run";

struct TrainFlags {
  trainer::TrainConfig config;
  std::string recipe;
  bool list_recipes = false;
  bool transport_given = false;  // on the command line
  std::string codec = "3lc";
  bool paper = false;
  double epochs = 0;
  std::string out;
  bool json = false;
  std::optional<std::string> tensorboard;             // a directory for its files
  std::optional<std::string> metrics;                 // where they are served
  std::string resume;                                 // the directory of a run that goes on
  bool resume_or_start = false;                       // that is `out`, once it has a checkpoint
  std::optional<CheckpointDirectory::Found> resumed;  // where it does
  Settings settings;
};

// Every step allocates and frees the same large tensors. By default each goes back to the system
// and is mapped again, which costs a third of the time where several workers do it at once.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

// The name of the recipe goes on record with what came of it.
nlohmann::json with_recipe(nlohmann::json record, const std::string& recipe) {
  if (!recipe.empty()) record["recipe"] = recipe;
  return record;
}

void write_model(const RunDirectory& directory, const trainer::TrainResult& result) {
  TensorFile file{.facts = {{"made_by", "tersewire " TERSEWIRE_VERSION}}, .arrays = {}};
  for (const auto& [name, array] : result.model) file.arrays[name] = {array.shape, array.values};
  write_new_file((directory.path() / kModelFile).string(), tensor_file_bytes(file));
}

// For a run that a signal has ended.
std::string how_to_go_on(const TrainFlags& flags, const std::filesystem::path& run) {
  if (!CheckpointDirectory(run).steps().empty()) {
    return fmt::format("'tersewire train --resume {}' goes on", run.string());
  }
  return flags.config.checkpoint_steps > 0
             ? "it had no checkpoint yet, begin it again"
             : "it had no --checkpoint-steps, give it some and begin it again";
}

// What was measured is on the disk before any of it is shown, whoever reads that. The summary is
// written, the model, and the end shown, each even where another fails; the first failure counts.
void tell(const TrainFlags& flags, const trainer::TrainResult& result,
          const RunDirectory& directory, const std::optional<Error>& of_metrics) {
  const TrainSummary summary(flags.config, result,
                             interrupted && result.steps < flags.config.steps);
  std::exception_ptr failure = of_metrics ? std::make_exception_ptr(*of_metrics) : nullptr;
  const auto attempt = [&](const auto& task) {
    try {
      task();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  const nlohmann::json record = with_recipe(summary.json(), flags.recipe);
  attempt([&] { directory.write_json(kSummaryFile, record); });
  attempt([&] { write_model(directory, result); });
  attempt([&] {
    print(flags.json ? json_text(record) + "\n"
                     : fmt::format("{}\nThe run{} is in {}\n", summary.table(),
                                   flags.recipe.empty() ? "" : " of recipe " + flags.recipe,
                                   directory.path().string()));
  });
  if (failure) std::rethrow_exception(failure);
  if (summary.interrupted()) {
    throw Error(ErrorCode::kCancelled,
                fmt::format("SIG{} ended the run after step {} of {}; {}",
                            sigabbrev_np(interrupting_signal()), result.steps, flags.config.steps,
                            how_to_go_on(flags, directory.path())));
  }
  if (summary.ended_by_its_loss()) {
    throw Error(ErrorCode::kOutOfRange, trainer::not_finite_sentence(*result.diverged_step));
  }
}

using Network = std::vector<std::unique_ptr<Transport>>;

// What the checkpoints of this run say of it.
CheckpointJob checkpoint_job(const TrainFlags& flags) {
  const trainer::TrainConfig& config = flags.config;
  CheckpointJob job{.nodes = config.workers + trainer::server_nodes(config),
                    .workers = config.workers,
                    .servers = config.servers,
                    .settings = flags.settings};
  job.settings["steps"] = std::to_string(config.steps);
  if (!flags.recipe.empty()) job.settings[kRecipe] = flags.recipe;
  return job;
}

// Writes the checkpoints of this process's nodes, and lets signals end the run.
trainer::TrainHooks hooks_of(const TrainFlags& flags, const std::filesystem::path& run) {
  return {
      .on_step = {},
      .on_event = {},
      .on_checkpoint =
          [directory = CheckpointDirectory(run), job = checkpoint_job(flags)](
              trainer::NodeCheckpoint checkpoint) { directory.save(job, std::move(checkpoint)); },
      .stop = &interrupted};
}

const trainer::JobCheckpoint* resumed_from(const TrainFlags& flags) {
  return flags.resumed ? &flags.resumed->checkpoint : nullptr;
}

RunDirectory directory_of(const TrainFlags& flags) {
  if (flags.resumed) {
    for (const std::string& sentence : flags.resumed->passed_over) {
      note(fmt::format("passed over a checkpoint: {}\n", sentence));
    }
    const std::uint64_t step = flags.resumed->checkpoint.step();
    RunDirectory directory = RunDirectory::resumed(flags.resume, step);
    CheckpointDirectory(flags.resume).remove_after(step);
    return directory;
  }
  if (flags.resume_or_start) return RunDirectory::restarted(flags.out);
  return flags.out.empty() ? RunDirectory::fresh(flags.config.model) : RunDirectory(flags.out);
}

// Trains in this directory, and takes it back where the run is refused before its first step:
// nothing is to stand in the way of the next one.
trainer::TrainResult train_in(RunDirectory& directory, MetricsWriter& metrics,
                              std::vector<std::unique_ptr<StepListener>> listeners,
                              const TrainFlags& flags, const trainer::DataSplits& data,
                              Network& network) {
  const trainer::TrainConfig& config = flags.config;
  const nlohmann::json record = with_recipe(config_json(config), flags.recipe);
  const std::uint64_t resumed_after = flags.resumed ? flags.resumed->checkpoint.step() : 0;
  TrainProgress progress(config.steps, resumed_after);
  bool begun = flags.resumed.has_value();
  trainer::TrainHooks hooks = hooks_of(flags, directory.path());
  hooks.on_step = [&](const trainer::StepReport& report) {
    begun = true;
    progress.show(report);
    metrics.add(report);
    for (const auto& listener : listeners) listener->on_step(report);
  };
  hooks.on_observation = [&](const trainer::Observation& observation) {
    metrics.add(observation);
    for (const auto& listener : listeners) listener->on_observation(observation);
  };
  try {
    if (flags.tensorboard) {  // which may be in the run's directory
      listeners.push_back(make_tensorboard_writer(*flags.tensorboard, record, resumed_after));
    }
    directory.write_json(kConfigFile, record);
    auto result = trainer::train(config, data, hooks, std::move(network), resumed_from(flags));
    progress.finish();
    return std::move(*result);
  } catch (...) {
    if (!begun) directory.forget();
    throw;
  }
}

// The process of rank 0, which is the one that tells.
void train_and_tell(const TrainFlags& flags, const trainer::DataSplits& data, Network& network) {
  std::vector<std::unique_ptr<StepListener>> listeners;
  if (flags.metrics) listeners.push_back(make_metrics_server(*flags.metrics));
  RunDirectory directory = directory_of(flags);
  MetricsWriter metrics(directory);
  const trainer::TrainResult result =
      train_in(directory, metrics, std::move(listeners), flags, data, network);
  tell(flags, result, directory, metrics.failure());
}

// The codec as its paper prints it, where we changed that and the text does not say.
std::string as_published(const std::string& codec) {
  const std::string name = codec.substr(0, codec.find(':'));
  const auto& known = codec_descriptions();
  const auto found = std::ranges::find(known, name, &CodecDescription::name);
  if (found == known.end()) return codec;
  const auto with = [&](std::string_view key, std::string_view value) {
    return codec.find(fmt::format("{}=", key)) != std::string::npos
               ? codec
               : fmt::format("{}{}{}={}", codec, codec == name ? ":" : ",", key, value);
  };
  for (const CodecParameter& parameter : found->parameters) {
    if (parameter.key == "mode" && parameter.range.find("paper") != std::string::npos) {
      return with("mode", "paper");
    }
    if (parameter.key == "lead" && parameter.value != "1" &&
        codec.find("ef=off") == std::string::npos) {
      return with("lead", "1");
    }
  }
  return codec;
}

void check_codecs(const TrainFlags& flags) {
  for (const std::string& codec : {flags.codec, flags.config.push_codec, flags.config.pull_codec}) {
    codec_argument(codec);
  }
}

// Epochs become steps, and what makes no sense with this data is refused.
void settle(TrainFlags& flags, bool epochs_given, const trainer::DataSplits& data) {
  trainer::TrainConfig& config = flags.config;
  as_usage([&] {
    if (epochs_given) {
      config.steps = trainer::steps_for_epochs(
          flags.epochs, data.train->size(), static_cast<std::size_t>(config.workers), config.batch);
    }
    trainer::check(config, data);
  });
}

void run_nodes(TrainFlags& flags, bool epochs_given, Network& network) {
  const trainer::TrainConfig& config = flags.config;
  const bool tells = network.front()->rank() == 0;
  as_usage([&] { trainer::check_nodes(config, network.front()->size()); });
  check_codecs(flags);
  const trainer::DataSplits data = as_usage([&] { return trainer::load_data(config); });
  settle(flags, epochs_given, data);
  trainer::check_memory(config);
  if (tells) {
    train_and_tell(flags, data, network);
  } else {
    trainer::train(config, data, hooks_of(flags, flags.resumed ? flags.resume : flags.out),
                   std::move(network), resumed_from(flags));
  }
}

// What a run that goes on may have otherwise than before.
const std::set<std::string> kChangeable{
    "workers", "servers",          "transport",     "deadline",   "progress-limit",
    "data",    "checkpoint-steps", "observe-steps", "keep-going", "threads"};

// Finds the last checkpoint.
void find_checkpoint(TrainFlags& flags) {
  if (flags.resume.empty()) throw WrongUsage("--resume needs the directory of a run");
  if (const auto steps = finished_steps(flags.resume)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the run in {} has taken all of its {} steps; begin a new one with "
                            "--out",
                            flags.resume, *steps));
  }
  flags.resumed = CheckpointDirectory(flags.resume).newest();
}

// --resume-or-start: whether there is something to do.
bool find_checkpoint_if_any(TrainFlags& flags) {
  if (flags.out.empty()) throw WrongUsage("--resume-or-start needs --out, where the run is");
  if (const auto steps = finished_steps(flags.out)) {
    note(fmt::format("the run in {} has taken all of its {} steps\n", flags.out, *steps));
    if (flags.json) {
      print(string_of(read_file((std::filesystem::path(flags.out) / kSummaryFile).string())));
    }
    return false;
  }
  flags.resumed = CheckpointDirectory(flags.out).newest_if_any();
  if (flags.resumed) flags.resume = flags.out;
  return true;
}

// Takes the settings of the checkpoint.
void resume(TrainFlags& flags, CLI::App& command) {
  Settings settings = flags.resumed->job.settings;
  const auto recipe = settings.extract(kRecipe);
  if (!flags.recipe.empty() && (!recipe || recipe.mapped() != flags.recipe)) {
    throw WrongUsage(
        fmt::format("the run in {} is not of recipe {}; leave it out, or choose another "
                    "--out",
                    flags.resume, flags.recipe));
  }
  if (recipe) flags.recipe = recipe.mapped();
  apply_settings(settings, command, kChangeable);
}

// Every process must know where to.
void check_out(const TrainFlags& flags) {
  if (flags.config.checkpoint_steps == 0 || flags.config.transport == "in-process" ||
      flags.resumed || !flags.out.empty()) {
    return;
  }
  throw WrongUsage(
      "checkpoints of several processes need a directory that all of them see; name "
      "it with --out");
}

// Processes that a launcher has started would each train on their own.
void check_launcher(const TrainFlags& flags) {
  if (flags.transport_given || flags.config.transport != "in-process") return;
  const auto number = [](const char* variable) {
    const char* text = std::getenv(variable);
    return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  };
  // Open MPI's, and those of MPICH and its kin.
  for (const auto& [size, rank] :
       {std::pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}}) {
    if (number(size) <= 1) continue;
    if (number(rank) > 0) throw ToldElsewhere();
    throw WrongUsage(
        fmt::format("{} processes were started, and each would train on its own; give --transport "
                    "mpi to make them one job, or --transport in-process if that is meant",
                    number(size)));
  }
}

// `tersewire data get` puts its sets into directories of their names.
void check_data_was_got(const std::string& path) {
  const std::string name = path.substr(0, path.find('/'));
  if (std::ranges::find(known_data_sets(), name, &DataSet::name) == known_data_sets().end() ||
      std::filesystem::exists(path)) {
    return;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("there is no {} in this directory; run 'tersewire data get {}', or say "
                          "where it is with --data",
                          path, name));
}

void run_train(TrainFlags& flags, bool epochs_given) {
  check_out(flags);
  check_launcher(flags);
  check_data_was_got(flags.config.data);
  keep_freed_memory();
  end_on_signals();
  Network network;
  as_usage([&] { network = trainer::join_network(flags.config); });
  const bool tells = network.front()->rank() == 0;
  try {
    run_nodes(flags, epochs_given, network);
  } catch (const std::exception& error) {
    if (!network.empty()) network.front()->abort(error.what());
    if (!tells && told_by_rank_0(error)) throw ToldElsewhere();
    // Of processes that each end at once.
    const auto* ended = dynamic_cast<const Error*>(&error);
    if (interrupting_signal() == 0 || ended == nullptr || ended->code() != ErrorCode::kCancelled) {
      throw;
    }
    const std::string& run = flags.resumed ? flags.resume : flags.out;
    throw Error(ErrorCode::kCancelled,
                fmt::format("{}; {}", error.what(), how_to_go_on(flags, run)));
  }
}

// What a recipe holds may make no sense, by itself or beside the command line.
template <typename Task>
void with_recipe_named(const std::string& recipe, Task&& task) {
  try {
    task();
  } catch (const WrongUsage& error) {
    if (recipe.empty()) throw;
    throw WrongUsage(fmt::format("recipe {}: {}", recipe, error.what()));
  }
}

void add_descent_options(CLI::App& command, trainer::TrainConfig& config) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str();
  };
  option("--lr", config.learning_rate, "Learning rate of the whole job, before it falls");
  command.add_flag("--scale-lr", config.scale_learning_rate,
                   "Multiply the learning rate by the number of workers");
  option("--schedule", config.schedule,
         "How the learning rate falls: constant, cosine, polynomial, step or exponential, with "
         "parameters (docs/training.md)");
  option("--warm-up", config.warm_up_steps,
         "Steps in which the learning rate rises from that of one worker")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  option("--optimizer", config.optimizer,
         "sgd, nesterov, or adam or adamw, as adam:beta1=0.9,beta2=0.999,eps=1e-8");
  option("--momentum", config.momentum, "Momentum of sgd and nesterov, from 0 to below 1");
  command.add_option("--outer", config.outer,
                     fmt::format("What moves the shared model by what workers have learned in "
                                 "--local-updates: sgd:lr=1, or nesterov [{}]",
                                 trainer::kDefaultOuter));
  option("--weight-decay", config.weight_decay, "Weight decay");
  option("--clip", config.clip,
         "Longest that a worker's gradient may be, as the root of all its squares: a longer one is "
         "scaled down before it is pushed; 0: any");
  option("--l1", config.l1, "Factor of the values' signs that are added to the gradients");
  option("--ema", config.ema,
         "Test the exponential moving average of the parameters with this decay; 0: the last");
}

// Registers the command; `act` gets what its command line says, and whether that names epochs.
void add_train_command_for(CLI::App& app, const std::function<void(TrainFlags&, bool)>& act) {
  CLI::App* command = app.add_subcommand("train", kTrainSummary);
  command->footer(kExamples + models_text());
  auto flags = std::make_shared<TrainFlags>();
  trainer::TrainConfig& config = flags->config;
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  CLI::Option* recipe = command->add_option(
      "--recipe", flags->recipe,
      "Settings by name (--list-recipes), or from a file of your own, named with a "
      "slash or .ini; other options override them (docs/training.md)");
  command->add_flag("--list-recipes", flags->list_recipes, "Show the recipes, and do nothing else");
  option("--model", config.model, "Network, one of those listed below");
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
                       config.local_steps, config.raw_from_all, config.part_values,
                       config.bucket_bytes);
  option(
      "--local-updates", config.local_updates,
      "Steps that each worker takes by itself, with its own --optimizer, before workers exchange "
      "how far they came; 0: they exchange gradients")
      ->check(CLI::Range(0, 1 << 20));
  CLI::Option* codec =
      option("--codec", flags->codec, "Codec for both directions; see 'tersewire codecs'");
  CLI::Option* push = command->add_option("--push-codec", config.push_codec, "Codec for gradients");
  CLI::Option* pull =
      command->add_option("--pull-codec", config.pull_codec, "Codec for what servers send");
  command->add_flag("--paper", flags->paper,
                    "Codecs as their papers print them, where ours do better: mode=paper, lead=1");
  CLI::Option* policy = option(
      "--policy", config.policy,
      "Rules CONDITION:CODEC; ... that override the codecs, or auto, small, light, 3lc-paper, "
      "terngrad-paper, adacomp-paper");
  option("--transport", config.transport,
         "What carries the bytes: in-process (threads), or mpi (processes that mpirun starts)");
  option("--threads", config.threads,
         "Threads of each node's codecs [0: the cores allowed over the nodes of this machine]")
      ->check(CLI::Range(std::size_t{0}, kMaxThreads));
  option("--deadline", config.deadline_seconds,
         "Seconds without a sign of life of a node after which a job over mpi ends")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{2592000}));
  option("--progress-limit", config.progress_limit_seconds,
         "Seconds without a message after which a job ends, alive as all nodes may be: more than a "
         "step, a test or a checkpoint takes")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{2592000}));
  CLI::Option* steps = option("--steps", config.steps, "Steps")
                           ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  CLI::Option* epochs =
      command->add_option("--epochs", flags->epochs, "Passes over the data, instead of --steps")
          ->excludes(steps);
  option("--batch", config.batch, "Images a worker and step")->check(CLI::Range(1, 1 << 20));
  add_descent_options(*command, config);
  command->add_flag("--keep-going", config.keep_going,
                    "Go on with a loss that is not a finite number, which otherwise ends the run");
  option("--seed", config.seed, "Of the weights, the order of the data and the embedded images");
  CLI::Option* out = command->add_option("--out", flags->out,
                                         "Directory for the run (default: a new one in runs/)");
  option("--checkpoint-steps", config.checkpoint_steps,
         "Steps after each of which the run saves what it would lose in a restart; 0: never")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  option("--observe-steps", config.observe_steps,
         "Steps between observations of test accuracy, codecs, residuals and gradients; 0: none")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  CLI::Option* resumed =
      command
          ->add_option("--resume", flags->resume,
                       "Directory of a run that goes on from its last checkpoint, with its own "
                       "settings; --workers, --servers and --transport may be others")
          ->excludes(out)
          ->excludes(recipe);
  command
      ->add_flag("--resume-or-start", flags->resume_or_start,
                 "Go on with the run in --out where it has a checkpoint, begin it where it has "
                 "none yet, and do nothing where it has ended: one command for a restart loop")
      ->excludes(resumed);
  command->add_option("--tensorboard", flags->tensorboard,
                      "Directory for a file that TensorBoard reads (docs/monitoring.md)");
  command->add_option("--metrics", flags->metrics,
                      "PORT, on this machine alone, or ADDRESS:PORT where Prometheus finds metrics "
                      "while the run lasts; port 0: any that is free");
  command->add_flag("--json", flags->json, "Print the summary alone, as JSON, on stdout");
  for (const char* not_for_recipes : {"--recipe", "--list-recipes", "--out", "--tensorboard",
                                      "--metrics", "--json", "--resume", "--resume-or-start"}) {
    command->get_option(not_for_recipes)->configurable(false);
  }
  command->callback([flags, command, recipe, codec, push, pull, policy, epochs, resumed, act] {
    if (flags->list_recipes) return print(recipe_list());
    flags->transport_given = command->get_option("--transport")->count() > 0;
    if (resumed->count() > 0) find_checkpoint(*flags);
    if (flags->resume_or_start && !find_checkpoint_if_any(*flags)) return;
    if (flags->resumed) resume(*flags, *command);
    if (recipe->count() > 0 && !flags->resumed) {
      // A codec on the command line is for everything, whatever the recipe had for a part.
      const bool codec_given = codec->count() > 0;
      apply_recipe(find_recipe(flags->recipe), *command,
                   codec_given ? std::set<const CLI::Option*>{push, pull, policy}
                               : std::set<const CLI::Option*>{});
    }
    if (!flags->resumed) apply_defaults(*command);
    flags->settings = settings_of(*command);
    if (push->count() == 0) flags->config.push_codec = flags->codec;
    if (pull->count() == 0) flags->config.pull_codec = flags->codec;
    if (flags->paper) {
      for (std::string* text : {&flags->config.push_codec, &flags->config.pull_codec}) {
        *text = as_published(*text);
      }
    }
    with_recipe_named(flags->recipe, [&] {
      // A resumed run has its number of steps already, whatever data and workers it has now.
      act(*flags, epochs->count() > 0 && !flags->resumed);
    });
  });
}

}  // namespace

void add_train_command(CLI::App& app) { add_train_command_for(app, run_train); }

trainer::TrainConfig TrainCheck::config_of(std::vector<std::string> arguments) {
  trainer::TrainConfig config;
  CLI::App app;
  add_train_command_for(app, [&](TrainFlags& flags, bool epochs_given) {
    check_codecs(flags);
    settle(flags, epochs_given, data_of(flags.config));
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
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}", config.data, config.model, config.augment, config.seed);
  if (!data_ || key != data_key_) {
    data_.reset();
    data_ = as_usage([&] { return trainer::load_data(config); });
    data_key_ = key;
  }
  return *data_;
}

std::vector<std::string> train_settings() {
  CLI::App app;
  add_train_command(app);
  return setting_names(*app.get_subcommand("train"));
}

std::vector<std::string> train_options_of_one_run() {
  CLI::App app;
  add_train_command(app);
  return setting_names(*app.get_subcommand("train"), false);
}

}  // namespace tersewire::apps
