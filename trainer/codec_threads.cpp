#include "trainer/codec_threads.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tersewire::trainer {

std::size_t allowed_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&cores));
}

namespace {

// Of this machine: all where they are threads of one process, and where no launcher tells.
std::size_t nodes_here(const TrainConfig& config, int nodes) {
  // Open MPI's, and MPICH's.
  constexpr std::array kLaunchers{"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
  for (const char* name : kLaunchers) {
    const char* text = config.transport == "mpi" ? std::getenv(name) : nullptr;
    if (text == nullptr) continue;
    const std::string_view number(text);
    std::size_t told = 0;
    std::from_chars(number.data(), number.data() + number.size(), told);
    if (told > 0) return told;
  }
  return static_cast<std::size_t>(std::max(nodes, 1));
}

}  // namespace

std::unique_ptr<ThreadPool> make_codec_threads(const TrainConfig& config, int nodes) {
  const std::size_t threads =
      config.threads != 0 ? config.threads : allowed_cores() / nodes_here(config, nodes);
  return threads > 1 ? std::make_unique<ThreadPool>(threads) : nullptr;
}

}  // namespace tersewire::trainer
