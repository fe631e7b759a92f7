#include "codec_text.h"

#include <algorithm>
#include <utility>

#include "errors.h"

namespace tersewire {
namespace {

constexpr float kMaxLead = 64;

}  // namespace

CodecText::CodecText(std::string_view text, std::string_view noun) : text_(text), noun_(noun) {
  const std::size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  if (colon == std::string_view::npos) return;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      fail(ErrorCode::kInvalidArgument,
           "{} '{}': '{}' is not a parameter; write NAME:KEY=VALUE,KEY=VALUE", noun_, text_, part);
    }
    const std::string key(part.substr(0, equals));
    if (std::ranges::any_of(parameters_, [&](const auto& known) { return known.first == key; })) {
      fail(ErrorCode::kInvalidArgument, "{} '{}' says {} twice; say it once", noun_, text_, key);
    }
    parameters_.emplace_back(key, part.substr(equals + 1));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::string CodecText::take_word(std::string_view key) {
  const auto found = std::ranges::find(parameters_, key, [](const auto& p) { return p.first; });
  if (found == parameters_.end()) return {};
  std::string value = std::move(found->second);
  parameters_.erase(found);
  return value;
}

std::string CodecText::set_default(std::string_view key, std::string_view value) {
  const auto found = std::ranges::find(parameters_, key, [](const auto& p) { return p.first; });
  if (found != parameters_.end()) return found->second;
  return parameters_.emplace_back(key, value).second;
}

void CodecText::refuse(std::string_view key, std::string_view what, std::string_view value) const {
  fail(ErrorCode::kInvalidArgument, "{} '{}': {} must be {}, not '{}'", noun_, text_, key, what,
       value);
}

double CodecText::take_number(std::string_view key, double fallback, double low, double high) {
  const std::string value = take_word(key);
  if (value.empty()) return fallback;
  const auto number = parsed_number<double>(value);
  if (!number || !(*number >= low && *number < high)) {
    refuse(key, fmt::format("a number from {} to below {}", low, high), value);
  }
  return *number;
}

std::uint64_t CodecText::take_integer(std::string_view key, std::uint64_t fallback,
                                      std::uint64_t low, std::uint64_t high) {
  const std::string value = take_word(key);
  if (value.empty()) return fallback;
  const auto number = parsed_number<std::uint64_t>(value);
  if (!number || *number < low || *number > high) {
    refuse(key, fmt::format("a whole number from {} to {}", low, high), value);
  }
  return *number;
}

std::size_t CodecText::take_choice(std::string_view key, const std::vector<std::string>& choices) {
  const std::string value = take_word(key);
  if (value.empty()) return 0;
  const auto found = std::ranges::find(choices, value);
  if (found == choices.end()) {
    refuse(key, fmt::format("one of {}", fmt::join(choices, ", ")), value);
  }
  return static_cast<std::size_t>(found - choices.begin());
}

bool CodecText::take_switch(std::string_view key, bool fallback) {
  using Choices = std::vector<std::string>;
  const std::size_t index =
      take_choice(key, fallback ? Choices{"on", "off"} : Choices{"off", "on"});
  return (index == 0) == fallback;
}

void CodecText::finish(std::span<const CodecParameter> known) const {
  if (parameters_.empty()) return;
  if (known.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} '{}': {} has no parameters", noun_, text_, name_);
  }
  std::string keys;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i > 0) keys += i + 1 < known.size() ? ", " : " and ";
    keys += known[i].key;
  }
  fail(ErrorCode::kInvalidArgument, "{} '{}': unknown parameter '{}'; {} has {}", noun_, text_,
       parameters_.front().first, name_, keys);
}

CodecParameter non_finite_parameter() {
  return {"non-finite", "send", "send, reject",
          "what to do with a tensor that holds NaN or infinity"};
}

EncoderOptions EncoderOptions::take(CodecText& text, bool error_feedback, float lead) {
  EncoderOptions options{
      .error_feedback = text.take_switch("ef", error_feedback),
      .reject_not_finite = text.take_choice("non-finite", {"send", "reject"}) == 1,
      .lead = 1,
      .has_lead = error_feedback};
  if (!options.has_lead) return options;
  const std::string word = text.take_word("lead");
  // Without a residual there is nothing to lead.
  if (word.empty()) {
    if (options.error_feedback) options.lead = lead;
    return options;
  }
  const auto number = parsed_number<float>(word);
  if (!number || !(*number >= 1 && *number <= kMaxLead)) {
    text.refuse("lead", fmt::format("a number from 1 to {}", kMaxLead), word);
  }
  if (!options.error_feedback && *number != 1) {
    text.refuse("lead", "1 with ef=off, where no residual makes up for it", word);
  }
  options.lead = *number;
  return options;
}

std::vector<CodecParameter> EncoderOptions::describe(std::vector<CodecParameter> own,
                                                     bool error_feedback, std::string lead) {
  if (error_feedback) {
    own.push_back({"lead", std::move(lead), fmt::format("[1, {}]", kMaxLead),
                   "how many times a new value counts in what is sent: less is sent late"});
  }
  own.push_back({"ef", error_feedback ? "on" : "off", "on, off",
                 "error accumulation: keep what was not sent in a residual"});
  own.push_back(non_finite_parameter());
  return own;
}

std::string EncoderOptions::text() const {
  return fmt::format("{}ef={},non-finite={}", has_lead ? fmt::format("lead={},", lead) : "",
                     error_feedback ? "on" : "off", reject_not_finite ? "reject" : "send");
}

}  // namespace tersewire
