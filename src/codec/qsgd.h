// Codec qsgd: values rounded at random to a few levels of their bucket's norm (QSGD, NIPS 2017,
// section 3.1).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& qsgd_codec();

}  // namespace tersewire
