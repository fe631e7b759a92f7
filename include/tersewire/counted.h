// Numbers of things, as sentences have them.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace tersewire {

// "1 worker", "2 workers"; "2 processes" where `plural` is more than the noun with an s.
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = {}) {
  std::string text = std::to_string(number);
  text.append(" ").append(number == 1 || plural.empty() ? noun : plural);
  if (number != 1 && plural.empty()) text.append("s");
  return text;
}

}  // namespace tersewire
