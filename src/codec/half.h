// Codecs fp16 and bf16: two bytes a value.
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& fp16_codec();
const CodecEntry& bf16_codec();

}  // namespace tersewire
