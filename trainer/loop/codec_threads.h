// The threads that a node's codecs have.
#pragma once

#include <memory>

#include "tersewire/thread_pool.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {

// As TrainConfig::threads says, for one of a job's `nodes`; null for a thread alone. Bytes do not
// depend on it.
std::unique_ptr<ThreadPool> make_codec_threads(const TrainConfig& config, int nodes);

}  // namespace tersewire::trainer
