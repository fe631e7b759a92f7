// Codecs of training for what is no training.
#pragma once

#include <string>

#include "tersewire/codec.h"
#include "tersewire/setting_text.h"

namespace tersewire::apps {

// The codec that encodes one array alone, where `text` names one for many: without a residual, and
// so without a lead, which only later arrays could take back. As it is where it says either. Throws
// like make_codec().
inline std::string codec_for_one_array(const std::string& text) {
  SettingText said(text, "codec");
  if (!said.take_word("ef").empty() || !said.take_word("lead").empty()) return text;
  if (!make_codec(text)->keeps_residual()) return text;
  said.set_default("ef", "off");
  return said.text();
}

}  // namespace tersewire::apps
