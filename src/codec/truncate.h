// Codec truncate: floats without their lower bits (INCEPTIONN, section VIII-C).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& truncate_codec();

}  // namespace tersewire
