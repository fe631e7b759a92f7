#include "trainer/loop/memory_estimate.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "tersewire/codec.h"
#include "tersewire/counted.h"
#include "tersewire/dry_run.h"
#include "tersewire/error.h"
#include "tersewire/transports.h"
#include "trainer/loop/descent.h"
#include "trainer/loop/local_nodes.h"

namespace tersewire::trainer {
namespace {

// What /proc/meminfo says of `name`, in bytes; 0 where it says nothing.
std::uint64_t said_by_meminfo(const std::string& name) {
  std::ifstream lines("/proc/meminfo");
  std::string word;
  std::uint64_t kibibytes = 0;
  while (lines >> word) {
    if (word == name && lines >> kibibytes) return kibibytes * 1024;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

std::uint64_t number_in(const char* path) {
  std::uint64_t number = std::numeric_limits<std::uint64_t>::max();
  std::ifstream file(path);
  return file >> number ? number : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t free_bytes() {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t available = said_by_meminfo("MemAvailable:");
  if (available > 0) bytes = available + said_by_meminfo("SwapFree:");
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::uint64_t>(bytes, limit.rlim_cur);
  }
  // Of a container; "max" where there is none.
  return std::min(bytes, number_in("/sys/fs/cgroup/memory.max"));
}

bool keeps_residual(const std::string& codec) { return make_codec(codec)->keeps_residual(); }

std::string gigabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB", 1e-9 * static_cast<double>(bytes));
  return text;
}

}  // namespace

std::uint64_t least_memory_bytes(const TrainConfig& config) {
  const Job job = job_of(config);
  std::uint64_t values = 0;
  for (const TensorInfo& tensor : job.tensors) values += tensor.elems();
  const bool here = !choose_transport(config.transport).between_processes;
  const auto workers = static_cast<std::uint64_t>(here ? config.job.workers : 1);
  // Parameters and their gradients. With rules of one's own a policy may leave no residual.
  std::uint64_t of_worker = 2;
  if (job.ladder || (job.policy == "auto" && keeps_residual(job.push_codec))) ++of_worker;
  // What a worker of an all-gather follows; servers' are one model more at most.
  const bool averages = exchange_traits(job.exchange).workers_own_model && !servers_encode(job);
  if (averages && !job.ladder && make_codec(job.push_codec)->sends_differences()) ++of_worker;
  if (config.job.local_updates > 0) of_worker += 1 + arrays_of_descent(workers_config(config));
  if (config.job.delay > 0) ++of_worker;
  std::uint64_t copies = 0;
  if (!config.dry.empty()) {
    copies +=
        static_cast<std::uint64_t>(std::ranges::count_if(codec_list(config.dry), keeps_residual));
  }
  if (exchange_traits(job.exchange).workers_own_model) {
    // A step of an optimizer takes memory for a while, which the worker's thread then keeps.
    of_worker += 1 + arrays_of_descent(owners_config(config));
    if (config.job.local_updates > 0) ++of_worker;  // the shared model
  } else if (here) {
    copies += 1 + arrays_of_descent(owners_config(config));
  }
  return (copies + workers * of_worker) * values * sizeof(float);
}

void check_memory(const TrainConfig& config) {
  const std::uint64_t needed = least_memory_bytes(config);
  const std::uint64_t there = free_bytes();
  if (needed <= there) return;
  throw Error(ErrorCode::kResourceExhausted,
              counted(config.job.workers, "worker") + " with " + config.model + " and " +
                  config.job.exchange + (config.job.workers == 1 ? " needs" : " need") +
                  " at least " + gigabytes(needed) + " of memory, but only " + gigabytes(there) +
                  " is free; use fewer workers, a smaller model or a machine with more memory");
}

}  // namespace tersewire::trainer
