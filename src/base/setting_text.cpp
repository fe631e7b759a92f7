#include "tersewire/setting_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "errors.h"

namespace tersewire {
namespace {

// "a, b and c".
std::string list_of(const std::vector<std::string>& names, std::string_view last) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 < names.size() ? ", " : fmt::format(" {} ", last);
    list += names[i];
  }
  return list;
}

}  // namespace

SettingText::SettingText(std::string_view text, std::string_view noun) : text_(text), noun_(noun) {
  const std::size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  if (colon == std::string_view::npos) return;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      fail(fmt::format("'{}' is not a parameter; write NAME:KEY=VALUE,KEY=VALUE", part));
    }
    const std::string key(part.substr(0, equals));
    if (std::ranges::any_of(parameters_, [&](const auto& known) { return known.first == key; })) {
      fail(fmt::format("{} is given twice; give it once", key));
    }
    parameters_.emplace_back(key, part.substr(equals + 1));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::string SettingText::text() const {
  std::string text = name_;
  char separator = ':';
  for (const auto& [key, value] : parameters_) {
    text += fmt::format("{}{}={}", separator, key, value);
    separator = ',';
  }
  return text;
}

std::string SettingText::take_word(std::string_view key) {
  const auto found = std::ranges::find(parameters_, key, [](const auto& p) { return p.first; });
  if (found == parameters_.end()) return {};
  std::string value = std::move(found->second);
  parameters_.erase(found);
  return value;
}

std::string SettingText::set_default(std::string_view key, std::string_view value) {
  const auto found = std::ranges::find(parameters_, key, [](const auto& p) { return p.first; });
  if (found != parameters_.end()) return found->second;
  return parameters_.emplace_back(key, value).second;
}

double SettingText::take_number(std::string_view key, double fallback, double low, double high) {
  const std::string value = take_word(key);
  if (value.empty()) return fallback;
  const auto number = parsed_number<double>(value);
  if (!number || !(*number >= low && *number < high)) {
    refuse(key, fmt::format("a number from {} to below {}", low, high), value);
  }
  return *number;
}

std::uint64_t SettingText::take_integer(std::string_view key, std::uint64_t fallback,
                                        std::uint64_t low, std::uint64_t high) {
  const std::string value = take_word(key);
  if (value.empty()) return fallback;
  const auto number = parsed_number<std::uint64_t>(value);
  if (!number || *number < low || *number > high) {
    refuse(key, fmt::format("a whole number from {} to {}", low, high), value);
  }
  return *number;
}

std::size_t SettingText::take_choice(std::string_view key,
                                     const std::vector<std::string>& choices) {
  const std::string value = take_word(key);
  if (value.empty()) return 0;
  const auto found = std::ranges::find(choices, value);
  if (found == choices.end()) {
    refuse(key, fmt::format("one of {}", fmt::join(choices, ", ")), value);
  }
  return static_cast<std::size_t>(found - choices.begin());
}

bool SettingText::take_switch(std::string_view key, bool fallback) {
  using Choices = std::vector<std::string>;
  const std::size_t index =
      take_choice(key, fallback ? Choices{"on", "off"} : Choices{"off", "on"});
  return (index == 0) == fallback;
}

void SettingText::fail(std::string_view sentence) const {
  tersewire::fail(ErrorCode::kInvalidArgument, "{} '{}': {}", noun_, text_, sentence);
}

void SettingText::refuse(std::string_view key, std::string_view what,
                         std::string_view value) const {
  fail(fmt::format("{} must be {}, not '{}'", key, what, value));
}

void SettingText::refuse_name(const std::vector<std::string>& known) const {
  tersewire::fail(ErrorCode::kInvalidArgument, "unknown {} '{}'; use {}", noun_, name_,
                  list_of(known, "or"));
}

void SettingText::finish(const std::vector<std::string>& keys) const {
  if (parameters_.empty()) return;
  if (keys.empty()) fail(fmt::format("{} has no parameters", name_));
  fail(fmt::format("unknown parameter '{}'; {} has {}", parameters_.front().first, name_,
                   list_of(keys, "and")));
}

}  // namespace tersewire
