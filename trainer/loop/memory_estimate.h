// Whether a job's nodes fit into this machine's memory, before they are made.
#pragma once

#include <cstdint>

#include "trainer/loop/train.h"

namespace tersewire::trainer {

// The least that the job's nodes take that run in this process, in bytes: what of each is as large
// as the model. Messages of codecs that shorten little, samples and what lies between layers come
// on top (512 workers of hdc with all-gather: 11.8 GB of 12.1 with 3lc).
std::uint64_t least_memory_bytes(const TrainConfig& config);

// Throws kResourceExhausted where that is more than the memory and swap that are free here, or than
// the process may take.
void check_memory(const TrainConfig& config);

}  // namespace tersewire::trainer
