// The nodes of a run that this process has: what becomes of them on the disk and on the screen.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/run/checkpoint_directory.h"
#include "apps/run/run_directory.h"
#include "apps/run/watch/step_listener.h"
#include "apps/train/train_options.h"
#include "tersewire/transport.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

using Network = std::vector<std::unique_ptr<Transport>>;
using Listeners = std::vector<std::unique_ptr<StepListener>>;

// For a run that a signal has ended.
std::string how_to_go_on(const TrainFlags& flags, const std::filesystem::path& run);

// What the checkpoints of this run say of it.
CheckpointJob checkpoint_job(const TrainFlags& flags);

// Writes the checkpoints of this process's nodes, and lets signals end the run.
trainer::TrainHooks hooks_of(const TrainFlags& flags, const std::filesystem::path& run);

const trainer::JobCheckpoint* resumed_from(const TrainFlags& flags);

// Throws kFailedPrecondition where the run in `out` had another value of a setting that counts, of
// those that a run keeps.
void check_same_run(const TrainFlags& flags,
                    const std::function<bool(const std::string& setting)>& counts);

// That of a run that begins or goes on with these flags.
RunDirectory directory_of(const TrainFlags& flags);

// What hears of every step, beside the run's directory: to be made before that, since a port may
// be in use.
Listeners listeners_of(const TrainFlags& flags);

// The process of rank 0, which is the one that tells: trains in this directory, and takes it back
// where the run is refused before its first step.
void train_and_tell(const TrainFlags& flags, const trainer::DataSplits& data, Network& network,
                    Listeners listeners, RunDirectory& directory, trainer::TrainHooks hooks);

}  // namespace tersewire::apps
