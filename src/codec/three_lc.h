// Codec 3lc: 3-value quantization with sparsity multiplication, base-3^5 and zero-run encoding
// (3LC, section 3).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& three_lc_codec();

}  // namespace tersewire
