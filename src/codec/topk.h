// Codec topk: the largest values as they are, and where they belong (3LC, section 4.2: "5%
// sparsification").
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& topk_codec();

}  // namespace tersewire
