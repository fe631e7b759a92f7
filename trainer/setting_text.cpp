#include "trainer/setting_text.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::trainer {

std::optional<double> parsed_number(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

SettingText::SettingText(const std::string& text, const std::string& noun)
    : text_(text), noun_(noun) {
  const std::size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  if (colon == std::string::npos) return;
  for (std::string rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const std::string part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      fail("'" + part + "' is not a parameter; write NAME:KEY=VALUE,KEY=VALUE");
    }
    const std::string key = part.substr(0, equals);
    if (!parameters_.emplace(key, part.substr(equals + 1)).second) {
      fail(key + " is said twice; say it once");
    }
    if (comma == std::string::npos) return;
    rest.erase(0, comma + 1);
  }
}

double SettingText::take_number(const std::string& key, double fallback, double low, double high) {
  const auto value = take_word(key);
  if (!value) return fallback;
  const auto number = parsed_number(*value);
  if (number && *number >= low && *number < high) return *number;
  std::ostringstream range;
  range << "a number from " << low << " to below " << high;
  refuse(key, range.str(), *value);
}

std::optional<std::string> SettingText::take_word(const std::string& key) {
  auto taken = parameters_.extract(key);
  if (taken.empty()) return std::nullopt;
  return std::move(taken.mapped());
}

void SettingText::refuse(const std::string& key, const std::string& what,
                         const std::string& value) const {
  fail(key + " must be " + what + ", not '" + value + "'");
}

void SettingText::refuse_name(const std::string& known) const {
  throw Error(ErrorCode::kInvalidArgument,
              "unknown " + noun_ + " '" + name_ + "'; there are " + known);
}

void SettingText::finish(std::initializer_list<const char*> keys) const {
  if (parameters_.empty()) return;
  if (keys.size() == 0) fail(name_ + " has no parameters");
  std::string known;
  for (const char* key : keys) {
    if (!known.empty()) known += key == *(keys.end() - 1) ? " and " : ", ";
    known += key;
  }
  fail("unknown parameter '" + parameters_.begin()->first + "'; " + name_ + " has " + known);
}

void SettingText::fail(const std::string& sentence) const {
  throw Error(ErrorCode::kInvalidArgument, noun_ + " '" + text_ + "': " + sentence);
}

}  // namespace tersewire::trainer
