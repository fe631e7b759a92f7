// Codec stoch3: stochastic ternary values in base-3^5 groups, the design that 3LC compares itself
// with (3LC, section 4.2, "Stoch 3-value b-3-5").
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& stoch3_codec();

}  // namespace tersewire
