#include "apps/train/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/read_file.h"
#include "apps/run/run_directory.h"
#include "apps/run/run_files.h"
#include "apps/train/recipe.h"
#include "apps/train/train_nodes.h"
#include "tersewire/codec.h"
#include "tersewire/grpc_members.h"
#include "tersewire/setting_text.h"
#include "tersewire/transports.h"
#include "trainer/models/models.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::apps {
namespace {

constexpr const char* kTrainExamples = R"(Examples:
  tersewire train                                   LeNet on the embedded images, 4 workers, 3LC
  tersewire train --codec 3lc:s=1.75 --steps 2000
  tersewire train --codec fp32 --json > fp32.json   the baseline to compare with
  tersewire train --data mnist/ --workers 10 --epochs 5 --model lenet
  tersewire train --codec auto                      chooses its codec while it trains
  tersewire train --push-codec 3lc:s=1.9 --pull-codec 3lc --backup-workers 1
  tersewire train --codec 3lc:s=1.75 --paper       as 3LC was published
  tersewire train --policy 'kind=bias:fp32; last:fp32; *:3lc:s=1.5'
  tersewire train --exchange ring --codec int8      no servers: every worker keeps the model
  tersewire train --optimizer adam --lr 0.001 --schedule polynomial --ema 0.999
  tersewire train --local-updates 50 --codec int8   workers learn by themselves for 50 steps
  mpirun --oversubscribe -n 5 tersewire train --transport mpi   one process per node, even on
                                                    fewer cores: 4 workers, then 1 server
  tersewire train --list-recipes                    the papers' experiments, by name
  tersewire train --recipe terngrad-lenet --codec fp32   one of them, and what to change in it
  tersewire train --out long --checkpoint-steps 100      saves what a restart would lose
  tersewire train --resume long                          continues from the last checkpoint
  tersewire train --resume-or-start --out long --checkpoint-steps 100    both, for a restart loop
  tersewire train --out spot --checkpoint-steps 100 --notice 30s,/run/notice   on a spot machine

3lc saves 30x and more, 3lc:s=1.75 60x and more; --paper uses codecs as published.)";

std::string models_text() {
  std::string text = "\n\nModels, the samples they take, and who trains them:";
  for (const trainer::ModelInfo& model : trainer::models()) {
    text += fmt::format(
        "\n  {:<11}{:<15}{}", model.name,
        model.takes.text ? "text" : fmt::format("{}", fmt::join(model.takes.shape, " x ")),
        model.description);
    if (model.trained_with.empty()) continue;
    text += fmt::format("\n  {:26}trained with", "");
    for (const auto& [key, value] : model.trained_with) text += fmt::format(" --{} {}", key, value);
    if (model.warm_up_of > 0) text += fmt::format(" --warm-up STEPS/{}", model.warm_up_of);
  }
  return text;
}

// The setting of a checkpoint that names the recipe: no option has this name.
constexpr const char* kRecipe = "recipe of the run";

// The codec as its paper prints it, where we changed that and the text does not say.
std::string as_published(const std::string& codec) {
  SettingText text = as_usage([&] { return SettingText(codec, "codec"); });
  const auto& known = codec_descriptions();
  const auto found = std::ranges::find(known, text.name(), &CodecDescription::name);
  if (found == known.end()) return codec;
  for (const CodecParameter& parameter : found->parameters) {
    if (!parameter.published.empty()) text.set_default(parameter.key, parameter.published);
  }
  return text.text();
}

// What a run that goes on may have otherwise than before.
std::set<std::string> changeable_settings() {
  std::set<std::string> keys{"link"};  // which only the advice of a dry run is for
  const trainer::TrainConfig any;
  trainer::visit_settings(any, [&](const trainer::Setting& setting, const auto& /*member*/) {
    if (setting.scope != trainer::SettingScope::kRun) keys.insert(setting.key);
  });
  return keys;
}

// Finds the last checkpoint.
void find_checkpoint(TrainFlags& flags) {
  if (flags.resume.empty()) throw WrongUsage("--resume needs the directory of a run; name it");
  if (const auto steps = finished_steps(flags.resume)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the run in {} has taken all of its {} steps; begin a new one with "
                            "--out",
                            flags.resume, *steps));
  }
  flags.resumed = CheckpointDirectory(flags.resume).newest();
}

void tell_that_it_is_done(const TrainFlags& flags, std::uint64_t steps) {
  note(fmt::format("the run in {} has taken all of its {} steps\n", flags.out, steps));
  if (flags.json) {
    print(string_of(read_file((std::filesystem::path(flags.out) / kSummaryFile).string())));
  }
  // The hub need not wait for this node.
  const auto place = choose_transport(flags.config.transport).grpc;
  if (!place) return;
  try {
    const std::string name = place->rank            ? std::to_string(*place->rank)
                             : !place->name.empty() ? place->name
                             : flags.config.elastic
                                 ? certified_name(place->security)
                                 : std::to_string(certified_rank(place->security));
    tell_done(place->hub, name, place->security, flags.config.job.wait_limits().deadline);
  } catch (const Error& error) {
    note(fmt::format("{}\n", error.what()));  // the run is done nevertheless
  }
}

// --resume-or-start: the steps of the run if it has ended.
std::optional<std::uint64_t> find_checkpoint_if_any(TrainFlags& flags) {
  if (flags.out.empty())
    throw WrongUsage("--resume-or-start needs the run's directory; give --out");
  if (const auto steps = finished_steps(flags.out)) return steps;
  flags.resumed = CheckpointDirectory(flags.out).newest_if_any();
  if (flags.resumed) flags.resume = flags.out;
  return std::nullopt;
}

// Takes the settings of the checkpoint.
void resume(TrainFlags& flags, CLI::App& command) {
  Settings settings = flags.resumed->job.settings;
  const auto recipe = settings.extract(kRecipe);
  if (!flags.recipe.empty() && (!recipe || recipe.mapped() != flags.recipe)) {
    throw WrongUsage(
        fmt::format("the run in {} is not of recipe {}; omit --recipe, or choose another "
                    "--out",
                    flags.resume, flags.recipe));
  }
  if (recipe) flags.recipe = recipe.mapped();
  apply_settings(settings, command, changeable_settings());
}

// What a recipe or the user's defaults hold may make no sense, by itself or beside the command
// line.
template <typename Task>
void with_origins_named(const TrainFlags& flags, Task&& task) {
  try {
    task();
  } catch (const WrongUsage& error) {
    throw WrongUsage(fmt::format("{}{}{}",
                                 flags.recipe.empty() ? "" : "recipe " + flags.recipe + ": ",
                                 error.what(), flags.defaults));
  }
}

// As --help shows them, those that most runs name first.
struct OptionGroup {
  const char* name;
  std::vector<const char*> options;
};
const std::vector<OptionGroup>& option_groups() {
  static const std::vector<OptionGroup> groups{
      {"What most runs say",
       {"--recipe", "--codec", "--model", "--data", "--workers", "--exchange", "--steps", "--lr",
        "--out", "--resume"}},
      {"Codecs",
       {"--paper", "--push-codec", "--pull-codec", "--later-codec", "--policy", "--budget",
        "--replay-decisions", "--dry", "--link"}},
      {"Model and data",
       {"--dropout", "--augment", "--skip-unreadable", "--batch", "--epochs", "--seed"}},
      {"Nodes, and what they send",
       {"--servers", "--backup-workers", "--raw-from-all", "--part-values", "--bucket-bytes",
        "--transport", "--threads", "--deadline", "--progress-limit", "--elastic"}},
      {"When they exchange",
       {"--staleness", "--local-steps", "--local-updates", "--fragments", "--delay", "--outer"}},
      {"Optimizer",
       {"--optimizer", "--scale-lr", "--schedule", "--warm-up", "--rate-gain", "--momentum",
        "--weight-decay", "--clip", "--l1", "--ema"}},
      {"The run",
       {"--list-recipes", "--checkpoint-steps", "--resume-or-start", "--notice", "--keep-going",
        "--compute-ms", "--slowest"}},
      {"What is shown", {"--observe-steps", "--tensorboard", "--metrics", "--json"}}};
  return groups;
}

struct TrainOptions {
  CLI::Option* recipe;
  CLI::Option* codec;
  CLI::Option* resume;
};

TrainOptions register_options(CLI::App& command, TrainFlags& flags) {
  TrainOptions options{};
  options.recipe = command.add_option(
      "--recipe", flags.recipe,
      "Settings by name (--list-recipes), or from a file of your own, named with a "
      "slash or .ini; other options override them (docs/training.md)");
  command.add_flag("--list-recipes", flags.list_recipes, "Show the recipes, and do nothing else");
  options.codec = command
                      .add_option("--codec", flags.codec,
                                  "Codec for both directions (see 'tersewire codecs'), or auto: "
                                  "the job chooses while it trains (docs/predict.md)")
                      ->capture_default_str();
  command.add_option(
      "--replay-decisions", flags.replay_decisions,
      "With --codec auto: the decisions.json of another run; each step uses the same codecs again");
  command.add_flag("--paper", flags.paper,
                   "Use codecs as published, without our improvements (mode=paper, lead=1, "
                   "--rate-gain 1, ...); codecs named in --policy and --dry are unaffected");
  trainer::visit_settings(flags.config, SettingOptions(command));
  command
      .add_option(
          "--link", flags.link,
          "RATE or RATE,LATENCY (20mbit,30ms) of the nodes' links, for which --dry recommends "
          "a codec")
      ->capture_default_str();
  command.add_option("--epochs", flags.epochs, "Passes over the data, instead of --steps")
      ->excludes(command.get_option("--steps"));
  CLI::Option* out =
      command.add_option("--out", flags.out, "Directory for the run (default: a new one in runs/)");
  options.resume =
      command
          .add_option("--resume", flags.resume,
                      "Directory of a run to continue from its last checkpoint, with its own "
                      "settings; --workers, --servers and --transport may differ")
          ->excludes(out)
          ->excludes(options.recipe);
  command
      .add_flag("--resume-or-start", flags.resume_or_start,
                "Resume the run in --out if it has a checkpoint, start it if not, do nothing if it "
                "has ended: one command for a restart loop")
      ->excludes(options.resume);
  command.add_option("--tensorboard", flags.tensorboard,
                     "Directory for a file that TensorBoard reads (docs/monitoring.md)");
  command.add_option("--metrics", flags.metrics,
                     "PORT, on this machine only, or ADDRESS:PORT where Prometheus finds metrics "
                     "while the run lasts; port 0: any that is free");
  command.add_option(
      "--notice", flags.notice,
      "LIMIT or LIMIT,FILE (30s; 30s,/run/notice): on SIGTERM, or when FILE appears, save and exit "
      "with 0 within LIMIT; otherwise fail just before it (docs/training.md)");
  command.add_flag("--json", flags.json, "Print the summary alone, as JSON, on stdout");
  for (const char* not_for_recipes :
       {"--recipe", "--list-recipes", "--out", "--tensorboard", "--metrics", "--notice", "--json",
        "--resume", "--resume-or-start", "--replay-decisions"}) {
    command.get_option(not_for_recipes)->configurable(false);
  }
  for (const OptionGroup& group : option_groups()) {
    for (const char* option : group.options) command.get_option(option)->group(group.name);
  }
  return options;
}

void choose_codecs(TrainFlags& flags, const CLI::App& command) {
  Job& job = flags.config.job;
  for (const auto& [option, codec] :
       {std::pair{"--push-codec", &job.push_codec}, {"--pull-codec", &job.pull_codec}}) {
    if (command.get_option(option)->count() == 0) *codec = flags.codec;
    if (flags.paper) *codec = as_published(*codec);
  }
  if (command.get_option("--pull-codec")->count() == 0) {
    job.pull_codec =
        as_usage([&] { return trainer::default_pull_codec(flags.config, job.pull_codec); });
  }
  if (flags.paper && !flags.resumed && job.push_codec == trainer::kAutoCodec) {
    throw WrongUsage("codec auto chooses among improved codecs; omit --paper, or name a codec");
  }
  std::string& later = flags.config.later_codec;
  const std::size_t when = later.find(':');
  if (flags.paper && when != std::string::npos) {
    later = later.substr(0, when + 1) + as_published(later.substr(when + 1));
  }
}

std::set<std::string> given_settings(const CLI::App& command) {
  std::set<std::string> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) given.insert(option->get_lnames().front());
  }
  return given;
}

// The command line and its recipe, which have given these, may not ask for another run than the one
// that has ended. The rest is as it was, as in a run that goes on.
void check_ended_run(TrainFlags flags, const CLI::App& command,
                     const std::set<std::string>& given) {
  choose_codecs(flags, command);
  const bool codecs_given = given.contains("codec") || given.contains("paper");
  check_same_run(flags, [&](const std::string& setting) {
    const bool is_codec = setting == "push-codec" || setting == "pull-codec";
    const bool is_gain = setting == "rate-gain" && given.contains("paper");
    return given.contains(setting) || (is_codec && codecs_given) || is_gain;
  });
}

// What the model is trained with, where nothing else says. Another optimizer than its own needs
// another rate as well.
void apply_models_own(TrainFlags& flags, CLI::App& command) {
  const auto& all = trainer::models();
  const auto found = std::ranges::find(all, flags.config.model, &trainer::ModelInfo::name);
  if (found == all.end()) return;  // which is refused later
  for (const auto& [key, value] : found->trained_with) {
    CLI::Option& option = *command.get_option("--" + key);
    if (option.count() == 0) {
      option.add_result(value);
      option.run_callback();
    } else if (key == "optimizer" && !option.as<std::string>().starts_with(value)) {
      return;
    }
  }
  if (command.get_option("--warm-up")->count() == 0) flags.warm_up_of = found->warm_up_of;
}

// No paper multiplies Adam's rate. Among the settings, so that a run that goes on keeps it.
void apply_papers_own(TrainFlags& flags, CLI::App& command) {
  CLI::Option& gain = *command.get_option("--rate-gain");
  if (!flags.paper || gain.count() > 0) return;
  with_origins_named(flags, [&] {
    if (!as_usage([&] { return trainer::has_rate_gain(flags.config); })) return;
    gain.add_result("1");
    gain.run_callback();
  });
}

// What the command line does not say, from the checkpoint, the recipe, the user's defaults and the
// model.
void fill_in(TrainFlags& flags, CLI::App& command, const TrainOptions& options, bool has_ended) {
  if (flags.resumed) {
    resume(flags, command);
    // It has its number of steps already, whatever data and workers it has now.
    flags.epochs.reset();
  } else {
    // A dry run changes nothing, unless the command line asks for a codec as well.
    if (!flags.config.dry.empty() && options.codec->count() == 0) {
      options.codec->add_result("fp32");
      options.codec->run_callback();
    }
    if (options.recipe->count() > 0) {
      // A codec on the command line is for everything, whatever the recipe had for a part.
      std::set<const CLI::Option*> settled;
      if (options.codec->count() > 0) {
        for (const char* name : kPartialCodecOptions) {
          settled.insert(command.get_option(name));
        }
      }
      apply_recipe(find_recipe(flags.recipe), command, settled);
    }
    const std::set<std::string> given = given_settings(command);
    flags.defaults = apply_defaults(command);
    apply_models_own(flags, command);
    apply_papers_own(flags, command);
    if (has_ended) check_ended_run(flags, command, given);
  }
  flags.settings = settings_of(command);
  if (!flags.recipe.empty()) flags.settings[kRecipe] = flags.recipe;
}

}  // namespace

void add_train_options(CLI::App& app, const std::function<void(TrainFlags&)>& act) {
  CLI::App* command = app.add_subcommand(
      "train",
      "Train a network with several workers, all traffic compressed, and show what it saved");
  command->footer(kTrainExamples + models_text());
  auto flags = std::make_shared<TrainFlags>();
  const TrainOptions options = register_options(*command, *flags);
  command->callback([flags, command, options, act] {
    if (flags->list_recipes) return print(recipe_list());
    flags->transport_given = command->get_option("--transport")->count() > 0;
    flags->pull_codec_given = command->get_option("--pull-codec")->count() > 0;
    flags->elastic_given = command->get_option("--elastic")->count() > 0;
    const bool link_given = command->get_option("--link")->count() > 0;
    if (command->get_option("--budget")->count() > 0 && !flags->replay_decisions.empty()) {
      throw WrongUsage(
          "--replay-decisions uses the codecs of another run, whatever they cost; omit --budget");
    }
    if (options.resume->count() > 0) find_checkpoint(*flags);
    std::optional<std::uint64_t> ended_after;
    if (flags->resume_or_start) ended_after = find_checkpoint_if_any(*flags);
    fill_in(*flags, *command, options, ended_after.has_value());
    if (ended_after) return tell_that_it_is_done(*flags, *ended_after);
    if (link_given && flags->config.dry.empty()) {
      throw WrongUsage(
          "--link only affects the recommendation of --dry; give --dry, or model links with "
          "--transport in-process:rate=20mbit,delay=40ms");
    }
    if (flags->epochs) flags->config.steps = trainer::kTooManySteps;  // until the data is known
    with_origins_named(*flags, [&] {
      choose_codecs(*flags, *command);
      act(*flags);
    });
  });
}

}  // namespace tersewire::apps
