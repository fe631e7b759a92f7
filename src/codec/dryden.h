// Codec dryden: which values are the largest, and the means of the positive and the negative ones
// among them (Dryden et al. 2016, as AdaComp compares itself with it).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& dryden_codec();

}  // namespace tersewire
