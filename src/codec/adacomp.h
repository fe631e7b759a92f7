// Codecs adacomp and local-selection: what is sent is chosen bin by bin (AdaComp, Algorithm 2).
#pragma once

#include "codec_entry.h"

namespace tersewire {

const CodecEntry& adacomp_codec();
const CodecEntry& local_selection_codec();

}  // namespace tersewire
