// Codec fp32: the values as they are.
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& fp32_codec();

}  // namespace tersewire
