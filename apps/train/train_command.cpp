// tersewire train: the main job.
#include <fmt/format.h>
#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/read_file.h"
#include "apps/run/checkpoint_directory.h"
#include "apps/run/run_directory.h"
#include "apps/train/dry_findings.h"
#include "apps/train/elastic_train.h"
#include "apps/train/notice.h"
#include "apps/train/train_check.h"
#include "apps/train/train_nodes.h"
#include "apps/train/train_options.h"
#include "tersewire/counted.h"
#include "tersewire/transports.h"
#include "trainer/chooser/decisions_json.h"
#include "trainer/loop/memory_estimate.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {
namespace {

// Every step allocates and frees the same large tensors. By default each goes back to the system
// and is mapped again, which costs a third of the time where several workers do it at once.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

// What of the run is saved is this step's state, or an earlier one's; `which` says what step it is.
NoticeWatch::Standing standing_after(std::uint64_t step, const char* which, const TrainFlags& flags,
                                     const std::filesystem::path& run) {
  auto saved = CheckpointDirectory(run).newest_step(checkpoint_job(flags).nodes);
  if (!saved && flags.resumed) saved = flags.resumed->checkpoint.step();
  const std::string go_on = how_to_go_on(flags, run);
  if (!saved)
    return {.sentence = fmt::format("nothing of {} is saved; {}", counted(step, "step"), go_on)};
  if (*saved < step) {
    return {.sentence = fmt::format("the last saved state is that of step {}, and {} {}; {}",
                                    *saved, step, which, go_on)};
  }
  return {.saved = true,
          .sentence = fmt::format(
              "the state of step {} is saved, but the run's results are not; {}", step, go_on)};
}

// A process without rank 0, which alone tells what the run came to.
void run_untold(const TrainFlags& flags, const trainer::DataSplits& data, Network& network,
                NoticeWatch& notice) {
  const std::filesystem::path run = flags.resumed ? flags.resume : flags.out;
  trainer::TrainHooks hooks = hooks_of(flags, run);
  const auto last = std::make_shared<std::atomic<std::uint64_t>>(0);
  if (!flags.notice.empty()) hooks.on_ending = [last](std::uint64_t step) { *last = step; };
  notice.ask([last, flags, run]() -> NoticeWatch::Standing {
    if (*last > 0) return standing_after(*last, "was to be the last", flags, run);
    return {.sentence = "the nodes have not agreed on a last step; " + how_to_go_on(flags, run)};
  });
  trainer::train(flags.config, data, hooks, std::move(network), resumed_from(flags));
}

void run_nodes(TrainFlags& flags, Network& network, NoticeWatch& notice) {
  const trainer::TrainConfig& config = flags.config;
  const bool tells = network.front()->rank() == 0;
  as_usage([&] { trainer::check_nodes(config, network.front()->size()); });
  const trainer::DataSplits data = load_data(config, tells);
  settle(flags, data);
  trainer::check_memory(config);
  if (tells) {
    Listeners listeners = listeners_of(flags);
    RunDirectory directory = directory_of(flags);
    trainer::TrainHooks hooks = hooks_of(flags, directory.path());
    const auto taken = std::make_shared<std::atomic<std::uint64_t>>(
        flags.resumed ? flags.resumed->checkpoint.step() : 0);
    hooks.on_step = [taken](const trainer::StepReport& report) { *taken = report.step; };
    if (!flags.notice.empty()) {
      hooks.on_ending = [](std::uint64_t last) {
        note(fmt::format("all nodes end after step {}\n", last));
      };
    }
    notice.ask([taken, flags, run = directory.path()] {
      return standing_after(*taken, "had been taken", flags, run);
    });
    train_and_tell(flags, data, network, std::move(listeners), directory, std::move(hooks));
  } else {
    run_untold(flags, data, network, notice);
  }
}

// Every process must know where to.
void check_out(const TrainFlags& flags) {
  if (flags.config.job.state_steps == 0 || flags.resumed || !flags.out.empty()) return;
  if (!choose_transport(flags.config.transport).between_processes) return;
  throw WrongUsage(
      "checkpoints of several processes need a directory that all of them see; name "
      "it with --out");
}

// Whoever has to go at a notice must be able to save what it has when it comes.
void check_notice(const TrainFlags& flags) {
  const Job& job = flags.config.job;
  if (flags.notice.empty() || flags.config.elastic) return;
  if (job.state_steps == 0) {
    throw WrongUsage("--notice needs checkpoints; give --checkpoint-steps");
  }
  if (!job.in_lock_step() || exchange_traits(job.exchange).averages_weights) {
    throw WrongUsage(
        "--notice makes a run save what it would lose after any step, but with weight-average and "
        "--staleness there are states only at multiples of --checkpoint-steps; omit --notice, or "
        "those");
  }
}

void read_replay(TrainFlags& flags) {
  if (flags.replay_decisions.empty()) return;
  if (flags.config.job.push_codec != trainer::kAutoCodec) {
    throw WrongUsage("--replay-decisions is for runs that choose their codec; give --codec auto");
  }
  const Bytes bytes = read_file(flags.replay_decisions);
  flags.replay = with_file(flags.replay_decisions,
                           [&] { return trainer::decisions_in_json(parse_json(bytes)); });
  if (flags.replay.empty()) {
    throw Error(ErrorCode::kDataLoss, flags.replay_decisions +
                                          " holds no decisions; name the decisions.json of a run "
                                          "with --codec auto");
  }
}

void run_train(TrainFlags& flags) {
  as_usage([&] {
    check_out(flags);
    if (!flags.transport_given) check_launcher(flags.config.transport);
    check_notice(flags);
    read_replay(flags);
    link_argument(flags.link);
    check_settings(flags);
  });
  check_data_was_got(flags.config.data);
  keep_freed_memory();
  end_on_signals();
  NoticeWatch notice(flags.notice);
  if (flags.config.elastic) return train_elastically(flags, notice);
  Network network;
  as_usage([&] { network = trainer::join_network(flags.config); });
  // Of those that one launcher has started, rank 0 says what failed; others each say it.
  const bool tells =
      network.front()->rank() == 0 || !choose_transport(flags.config.transport).launched;
  try {
    run_nodes(flags, network, notice);
  } catch (const std::exception& error) {
    if (!network.empty()) network.front()->abort(error.what());
    if (!tells && told_by_rank_0(error)) throw ToldElsewhere();
    // Processes each end at once; a run in one has told how to go on.
    const auto* ended = dynamic_cast<const Error*>(&error);
    if (!choose_transport(flags.config.transport).between_processes || interrupting_signal() == 0 ||
        ended == nullptr || ended->code() != ErrorCode::kCancelled) {
      throw;
    }
    const std::string& run = flags.resumed ? flags.resume : flags.out;
    throw Error(ErrorCode::kCancelled,
                fmt::format("{}; {}", error.what(), how_to_go_on(flags, run)));
  }
}

}  // namespace

void add_train_command(CLI::App& app) { add_train_options(app, run_train); }

}  // namespace tersewire::apps
