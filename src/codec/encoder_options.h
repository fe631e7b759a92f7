// The parameters that codecs have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/setting_text.h"

namespace tersewire {

// The keys of parameters, for SettingText::finish().
std::vector<std::string> keys_of(std::span<const CodecParameter> parameters);

// How listings describe non-finite=send|reject.
CodecParameter non_finite_parameter();

// The parameters that every codec has that loses something.
struct EncoderOptions {
  bool error_feedback = true;  // ef=on|off|21: keep a residual
  // ef=21, of codecs with a lead: what is sent is the difference to what was sent so far, and the
  // residual is that, negated (Encoder::sends_differences()).
  bool differences = false;
  bool reject_not_finite = false;  // non-finite=send|reject
  // lead=L: how many times the input counts when what is sent is chosen (spec/wire-format.md,
  // "Lead"); only with a residual. 1: once, as in the papers.
  float lead = 1;
  // Whether the codec has a lead: those that keep a residual unless told not to.
  bool has_lead = false;

  // Takes them from a text; `error_feedback` says the codec's default, `lead` that of its lead.
  static EncoderOptions take(SettingText& text, bool error_feedback, float lead = 1);
  // A codec's own parameters and these, for its description; `error_feedback` as above, `lead` the
  // default in words.
  static std::vector<CodecParameter> describe(std::vector<CodecParameter> own, bool error_feedback,
                                              std::string lead = "1");
  // "lead=1,ef=on,non-finite=send", which ends the codec's text.
  [[nodiscard]] std::string text() const;
};

}  // namespace tersewire
