// Codec terngrad: stochastic ternary values under a scaler, with clipping and buckets (TernGrad,
// section 3).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& terngrad_codec();

}  // namespace tersewire
