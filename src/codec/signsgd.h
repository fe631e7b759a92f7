// Codec signsgd: one bit a value and one magnitude for all (EF-signSGD, ICML 2019).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& signsgd_codec();

}  // namespace tersewire
