// A codec that takes the place of a job's own after some of its steps: what is late counts most
// while a model learns fast, so a mild codec first and a strong one later lose less than one
// between them (evidence/adamw, "Mild first, strong later").
#pragma once

#include <cstdint>
#include <string>

#include "tersewire/communicator.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {

struct LaterCodec {
  std::uint64_t after = 0;  // steps
  std::string codec;
};

// Of "40%:3lc:s=1.75", after that part of the steps, or of "400:3lc:s=1.75", after so many. Throws
// kInvalidArgument for another text; whether there is such a codec is not looked at.
LaterCodec later_codec(const std::string& text, std::uint64_t steps);

// That text of a job of `steps` for one of any other number: after the same part of the steps.
// Throws as later_codec() does.
std::string scaled_later_codec(const std::string& text, std::uint64_t steps);

// Has a job go on with that codec, in both directions, from its first exchange after those steps
// on. What servers send has its default_pull_codec() if that of the first is the default, too.
// Throws kInvalidArgument where the job has two codecs but for a residual of means
// (adaptive_pull_codec()), or one that chooses itself.
void go_on_with(const LaterCodec& later, const TrainConfig& config, Job& job);

}  // namespace tersewire::trainer
