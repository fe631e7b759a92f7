// Codec inceptionn (INCEPTIONN, sections V and VI-A).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& inceptionn_codec();

}  // namespace tersewire
