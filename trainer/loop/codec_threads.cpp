#include "trainer/loop/codec_threads.h"

#include <algorithm>

#include "tersewire/transports.h"

namespace tersewire::trainer {

namespace {

// Of this machine: all where they are threads of one process, and where no launcher says.
std::size_t nodes_here(const TrainConfig& config, int nodes) {
  int here = nodes;
  const auto job = launched_job();
  if (job && job->processes_here > 0 && choose_transport(config.transport).between_processes) {
    here = job->processes_here;
  }
  return static_cast<std::size_t>(std::max(here, 1));
}

}  // namespace

std::unique_ptr<ThreadPool> make_codec_threads(const TrainConfig& config, int nodes) {
  const std::size_t threads =
      config.threads != 0 ? config.threads : allowed_cores() / nodes_here(config, nodes);
  return threads > 1 ? std::make_unique<ThreadPool>(threads) : nullptr;
}

}  // namespace tersewire::trainer
