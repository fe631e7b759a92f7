#include "apps/train/train_nodes.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/files/new_file.h"
#include "apps/run/metrics_writer.h"
#include "apps/run/numbers/json_object.h"
#include "apps/run/run_files.h"
#include "apps/run/run_json.h"
#include "apps/run/train_summary.h"
#include "apps/run/watch/train_progress.h"
#include "apps/train/dry_findings.h"
#include "trainer/chooser/decisions_json.h"
#include "trainer/files/dry_json.h"
#include "trainer/files/tensor_file.h"

namespace tersewire::apps {

std::string how_to_go_on(const TrainFlags& flags, const std::filesystem::path& run) {
  if (!run.empty() && !CheckpointDirectory(run).steps().empty()) {
    return fmt::format("'tersewire train --resume {}' continues it", run.string());
  }
  return flags.config.job.state_steps > 0
             ? "it had no checkpoint yet, so start it again"
             : "it had no checkpoints, so start it again with --checkpoint-steps";
}

CheckpointJob checkpoint_job(const TrainFlags& flags) {
  const trainer::TrainConfig& config = flags.config;
  CheckpointJob job{.nodes = config.job.workers + trainer::server_nodes(config),
                    .workers = config.job.workers,
                    .servers = config.job.servers,
                    .settings = flags.settings};
  job.settings["steps"] = std::to_string(config.steps);
  job.settings["warm-up"] = std::to_string(config.warm_up_steps);
  return job;
}

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

void check_same_run(const TrainFlags& flags,
                    const std::function<bool(const std::string& setting)>& counts) {
  const nlohmann::json found = json_object_if_any(std::filesystem::path(flags.out) / kConfigFile);
  const nlohmann::json ours = config_json(flags.config);
  trainer::visit_settings(flags.config, [&](const trainer::Setting& setting, const auto&) {
    const std::string key = trainer::json_key_of(setting);
    if (setting.scope != trainer::SettingScope::kRun || !found.contains(key)) return;
    if (!counts(setting.key) || found[key] == ours[key]) return;
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds a run whose {} is {} and not {}; choose another --out, or "
                            "remove it",
                            flags.out, key, found[key].dump(), ours[key].dump()));
  });
}

namespace {

// Whether the run's directory, by now locked, is as it was when its checkpoint was looked for: data
// has been loaded since, and another process may have ended the run meanwhile.
void check_untouched(const TrainFlags& flags, const std::string& run) {
  const CheckpointDirectory checkpoints(run);
  const bool has_same_checkpoint =
      flags.resumed
          ? checkpoints.newest_step(flags.resumed->job.nodes) == flags.resumed->newest_step
          : !checkpoints.newest_if_any();
  if (has_same_checkpoint && !finished_steps(run)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("another process has continued the run in {} since this one looked for "
                          "its checkpoint; run the command again",
                          run));
}

}  // namespace

RunDirectory directory_of(const TrainFlags& flags) {
  if (flags.resumed) {
    for (const std::string& sentence : flags.resumed->passed_over) {
      complain(fmt::format("skipped a checkpoint: {}\n", sentence));
    }
    const std::uint64_t step = flags.resumed->checkpoint.step();
    RunDirectory directory =
        RunDirectory::resumed(flags.resume, step, [&] { check_untouched(flags, flags.resume); });
    CheckpointDirectory(flags.resume).remove_after(step);
    return directory;
  }
  if (flags.resume_or_start) {
    // A restart loop begins its own run again and no other, where none has a checkpoint.
    check_same_run(flags, [](const std::string& /*setting*/) { return true; });
    return RunDirectory::restarted(flags.out, flags.tensorboard,
                                   [&] { check_untouched(flags, flags.out); });
  }
  return flags.out.empty() ? RunDirectory::fresh(flags.config.model) : RunDirectory(flags.out);
}

namespace {

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

// What was measured is on the disk before any of it is shown, whoever reads that. The summary is
// written, the model, and the end shown, each even where another fails; the first failure counts.
void tell(const TrainFlags& flags, const trainer::TrainResult& result,
          const std::optional<DryRunFindings>& dry, const RunDirectory& directory,
          const std::optional<Error>& of_metrics) {
  const TrainSummary summary(flags.config, result, result.stopped_by.has_value());
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
  const NamedLink link = link_argument(flags.link);
  if (dry) {
    attempt([&] { directory.write_json(kDryFile, trainer::dry_json(*dry, link.speed)); });
  }
  attempt([&] {
    print(flags.json ? json_text(record) + "\n"
                     : fmt::format("{}\nThe run{} is in {}\n", summary.table(),
                                   flags.recipe.empty() ? "" : " of recipe " + flags.recipe,
                                   directory.path().string()));
    if (dry && !flags.json) {
      print(dry_text(*dry, flags.config.job, result.compute_seconds, link));
    }
  });
  if (failure) std::rethrow_exception(failure);
  if (summary.interrupted()) {
    const bool by_this_node = *result.stopped_by == 0;
    const std::string sentence = fmt::format(
        "{} ended the run after step {} of {}; {}",
        by_this_node ? interruption() : fmt::format("the notice of rank {}", *result.stopped_by),
        result.steps, flags.config.steps, how_to_go_on(flags, directory.path()));
    if (by_this_node && flags.notice.empty()) throw Error(ErrorCode::kCancelled, sentence);
    note(sentence + "\n");  // as it was meant to
  }
  if (!result.ended_by.empty()) throw Error(ErrorCode::kOutOfRange, result.ended_by);
}

// Trains in this directory, and takes it back where the run is refused before its first step:
// nothing is to stand in the way of the next one.
trainer::TrainResult train_in(RunDirectory& directory, MetricsWriter& metrics, Listeners listeners,
                              const TrainFlags& flags, const trainer::DataSplits& data,
                              Network& network, trainer::TrainHooks hooks,
                              std::optional<DryRunFindings>& dry) {
  const trainer::TrainConfig& config = flags.config;
  const nlohmann::json record = with_recipe(config_json(config), flags.recipe);
  const std::uint64_t resumed_after = flags.resumed ? flags.resumed->checkpoint.step() : 0;
  TrainProgress progress(config.steps, resumed_after);
  bool begun = flags.resumed.has_value();
  hooks.on_step = [&, others = std::move(hooks.on_step)](const trainer::StepReport& report) {
    if (others) others(report);
    begun = true;
    progress.show(report);
    metrics.add(report);
    for (const auto& listener : listeners) listener->on_step(report);
  };
  hooks.on_observation = [&](const trainer::Observation& observation) {
    metrics.add(observation);
    for (const auto& listener : listeners) listener->on_observation(observation);
  };
  std::vector<std::string> said;
  hooks.on_decision = [&](const trainer::CodecDecisions& all) {
    directory.write_json(kDecisionsFile, trainer::decisions_json(all));
    for (std::size_t i = 0; i < all.size(); ++i) {
      said.resize(all.size());
      if (said[i] == all[i].sentence || all[i].step <= resumed_after) continue;
      said[i] = all[i].sentence;
      (all[i].over_budget ? complain : note)(said[i] + "\n");
      metrics.add_decision(said[i]);
    }
  };
  hooks.replay = flags.replay.empty() ? nullptr : &flags.replay;
  hooks.on_dry_run = [&](const DryRun& run) { dry = run.findings(); };
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
    // Which has ended the run, as an interrupt would.
    if (metrics.failure()) throw *metrics.failure();
    throw;
  }
}

}  // namespace

Listeners listeners_of(const TrainFlags& flags) {
  Listeners listeners;
  if (flags.metrics) listeners.push_back(make_metrics_server(*flags.metrics));
  return listeners;
}

void train_and_tell(const TrainFlags& flags, const trainer::DataSplits& data, Network& network,
                    Listeners listeners, RunDirectory& directory, trainer::TrainHooks hooks) {
  MetricsWriter metrics(directory);
  std::optional<DryRunFindings> dry;
  const trainer::TrainResult result = train_in(directory, metrics, std::move(listeners), flags,
                                               data, network, std::move(hooks), dry);
  tell(flags, result, dry, directory, metrics.failure());
}

}  // namespace tersewire::apps
