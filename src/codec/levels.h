// Codec levels: averages of workers' ternary gradients under shared scalers (TernGrad, section
// 3.1). Payloads are made by append_levels() of tersewire/codec.h; no text makes an encoder.
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& levels_codec();

}  // namespace tersewire
