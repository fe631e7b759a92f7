// What codecs were measured to cost, by the codec rather than by its text.
#pragma once

#include "tersewire/codec.h"
#include "tersewire/predict.h"

namespace tersewire {

// As measured_codec() of its text; a ladder counts as its first codec.
const MeasuredCodec& measured_codec(const Codec& codec);

}  // namespace tersewire
