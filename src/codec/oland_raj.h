// Codec oland-raj: uniform quantization to as many bits as the values' entropy asks for, then
// Huffman codes (Oland & Raj, Algorithms 1 and 2).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& oland_raj_codec();

}  // namespace tersewire
