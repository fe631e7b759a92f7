#include "codec_text.h"

#include <algorithm>
#include <charconv>

#include "errors.h"

namespace tersewire {

CodecText::CodecText(std::string_view text) : text_(text) {
  const std::size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  if (colon == std::string_view::npos) return;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      fail(ErrorCode::kInvalidArgument,
           "codec '{}': '{}' is no parameter; write NAME:KEY=VALUE,KEY=VALUE", text_, part);
    }
    const std::string key(part.substr(0, equals));
    if (std::ranges::any_of(parameters_, [&](const auto& known) { return known.first == key; })) {
      fail(ErrorCode::kInvalidArgument, "codec '{}' says {} twice; say it once", text_, key);
    }
    parameters_.emplace_back(key, part.substr(equals + 1));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::string CodecText::take(std::string_view key) {
  const auto found = std::ranges::find(parameters_, key, [](const auto& p) { return p.first; });
  if (found == parameters_.end()) return {};
  std::string value = std::move(found->second);
  parameters_.erase(found);
  return value;
}

double CodecText::take_number(std::string_view key, double fallback, double low, double high) {
  const std::string value = take(key);
  if (value.empty()) return fallback;
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [parsed, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || parsed != end || !(number >= low && number < high)) {
    fail(ErrorCode::kInvalidArgument,
         "codec '{}': {} must be a number from {} to below {}, not '{}'", text_, key, low, high,
         value);
  }
  return number;
}

std::size_t CodecText::take_choice(std::string_view key, const std::vector<std::string>& choices) {
  const std::string value = take(key);
  if (value.empty()) return 0;
  const auto found = std::ranges::find(choices, value);
  if (found == choices.end()) {
    fail(ErrorCode::kInvalidArgument, "codec '{}': {} must be one of {}, not '{}'", text_, key,
         fmt::join(choices, ", "), value);
  }
  return static_cast<std::size_t>(found - choices.begin());
}

bool CodecText::take_switch(std::string_view key, bool fallback) {
  using Choices = std::vector<std::string>;
  const std::size_t index =
      take_choice(key, fallback ? Choices{"on", "off"} : Choices{"off", "on"});
  return (index == 0) == fallback;
}

void CodecText::finish(std::string_view known) const {
  if (parameters_.empty()) return;
  fail(ErrorCode::kInvalidArgument, "codec '{}': there is no parameter '{}'; {} has {}", text_,
       parameters_.front().first, name_, known);
}

EncoderOptions EncoderOptions::take(CodecText& text, bool error_feedback) {
  return {.error_feedback = text.take_switch("ef", error_feedback),
          .reject_not_finite = text.take_choice("non-finite", {"send", "reject"}) == 1};
}

std::string EncoderOptions::text() const {
  return fmt::format("ef={},non-finite={}", error_feedback ? "on" : "off",
                     reject_not_finite ? "reject" : "send");
}

}  // namespace tersewire
