// Codec int8: a signed byte a value, multiples of a scale (3LC, section 4.2, "8-bit int").
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& int8_codec();

}  // namespace tersewire
