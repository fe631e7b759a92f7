// Codecs mqe1bit and signsgd: one bit a value, which says which of two values it becomes.
#pragma once

#include "codec_entry.h"

namespace tersewire {

// The mean of the values of either sign (1-bit SGD; 3LC, section 4.2).
const CodecEntry& mqe1bit_codec();
// Plus or minus the mean magnitude (EF-signSGD, ICML 2019).
const CodecEntry& signsgd_codec();

}  // namespace tersewire
