#include "encoder_options.h"

#include <fmt/format.h>

#include <utility>

namespace tersewire {
namespace {

constexpr float kMaxLead = 64;

}  // namespace

std::vector<std::string> keys_of(std::span<const CodecParameter> parameters) {
  std::vector<std::string> keys;
  for (const CodecParameter& parameter : parameters) keys.push_back(parameter.key);
  return keys;
}

CodecParameter non_finite_parameter() {
  return {"non-finite", "send", "send, reject",
          "what to do with a tensor that holds NaN or infinity"};
}

EncoderOptions EncoderOptions::take(SettingText& text, bool error_feedback, float lead) {
  EncoderOptions options{.has_lead = error_feedback};
  if (!options.has_lead) {
    options.error_feedback = text.take_switch("ef", false);
  } else {
    const std::size_t chosen = text.take_choice("ef", {"on", "off", "21"});
    options.error_feedback = chosen != 1;
    options.differences = chosen == 2;
  }
  options.reject_not_finite = text.take_choice("non-finite", {"send", "reject"}) == 1;
  if (!options.has_lead) return options;
  const std::string word = text.take_word("lead");
  // Without a residual there is nothing to lead, and differences are not late.
  if (word.empty()) {
    if (options.error_feedback && !options.differences) options.lead = lead;
    return options;
  }
  const auto number = parsed_number<float>(word);
  if (!number || !(*number >= 1 && *number <= kMaxLead)) {
    text.refuse("lead", fmt::format("a number from 1 to {}", kMaxLead), word);
  }
  if (!options.error_feedback && *number != 1) {
    text.refuse("lead", "1 with ef=off, where no residual makes up for it", word);
  }
  if (options.differences && *number != 1) {
    text.refuse("lead", "1 with ef=21, which sends differences", word);
  }
  options.lead = *number;
  return options;
}

std::vector<CodecParameter> EncoderOptions::describe(std::vector<CodecParameter> own,
                                                     bool error_feedback, std::string lead) {
  if (error_feedback) {
    own.push_back({"lead", std::move(lead), fmt::format("[1, {}]", kMaxLead),
                   "weight of a new value in what is sent: higher sends it sooner", "1"});
  }
  own.push_back({"ef", error_feedback ? "on" : "off", error_feedback ? "on, off, 21" : "on, off",
                 error_feedback
                     ? "error accumulation: keep what was not sent in a residual; 21: send "
                       "differences to what was sent so far (EF21)"
                     : "error accumulation: keep what was not sent in a residual"});
  own.push_back(non_finite_parameter());
  return own;
}

std::string EncoderOptions::text() const {
  return fmt::format("{}ef={},non-finite={}", has_lead ? fmt::format("lead={},", lead) : "",
                     differences      ? "21"
                     : error_feedback ? "on"
                                      : "off",
                     reject_not_finite ? "reject" : "send");
}

}  // namespace tersewire
