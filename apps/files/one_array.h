// Codecs of training for what is no training.
#pragma once

#include <string>

#include "tersewire/codec.h"

namespace tersewire::apps {

// Whether it has a residual. An empty tensor's is empty, so another length is asked.
inline bool keeps_residual(const Codec& codec) {
  return !codec.make_encoder(1)->residual().empty();
}

// The codec that encodes one array alone, where `text` names one for many: without a residual, and
// so without a lead, which only later arrays could take back. As it is where it says either. Throws
// like make_codec().
inline std::string codec_for_one_array(const std::string& text) {
  for (const char* said : {":ef=", ",ef=", ":lead=", ",lead="}) {
    if (text.find(said) != std::string::npos) return text;
  }
  if (!keeps_residual(*make_codec(text))) return text;
  return text + (text.find(':') == std::string::npos ? ":ef=off" : ",ef=off");
}

}  // namespace tersewire::apps
