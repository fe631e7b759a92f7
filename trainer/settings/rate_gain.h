// What Adam's learning rate is multiplied by because gradients were encoded.
#pragma once

#include <cstdint>
#include <functional>

#include "tersewire/communicator.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {

// Whether the optimizer divides by the size of gradients. Throws kInvalidArgument for what is not
// an optimizer's text.
bool is_adaptive(const TrainConfig& config);

// Whether learning rates may be multiplied at all: an adaptive optimizer that is given encoded
// gradients. Throws kInvalidArgument for what is not an optimizer's or an exchange's text.
bool has_rate_gain(const TrainConfig& config);

// Throws kInvalidArgument for a TrainConfig::rate_gain that is not a finite number above 0, or that
// the job has no use for.
void check_rate_gain(const TrainConfig& config);

// By the exchange's number, from 1: TrainConfig::rate_gain, or where it has none that of the
// codecs which gradients are pushed with then (adaptive_rate_gain()). 1 where no encoded gradients
// go through an adaptive optimizer. As fast as the job's ladder, which must outlive it.
std::function<double(std::uint64_t exchange)> rate_gain(const TrainConfig& config, const Job& job);

}  // namespace tersewire::trainer
