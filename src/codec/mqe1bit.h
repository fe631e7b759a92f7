// Codec mqe1bit: one bit a value, the means of either sign as values (1-bit SGD; 3LC, section 4.2).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& mqe1bit_codec();

}  // namespace tersewire
