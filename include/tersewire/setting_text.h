// The text syntax of codecs, exchanges, transports and other settings with a name and parameters:
// NAME or NAME:KEY=VALUE,KEY=VALUE.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace tersewire {

// All of `text` as a number; nothing if it is not a number, does not fit T, or is not finite.
template <typename T>
std::optional<T> parsed_number(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

// The parts of such a text. Its reader takes each parameter once; finish() refuses parameters that
// nobody took, so a misspelt key never passes. All functions throw kInvalidArgument with a sentence
// that names the text, the key and the allowed values. One thread.
class SettingText {
 public:
  // `noun` says what the text names, for sentences: "codec", "exchange".
  SettingText(std::string_view text, std::string_view noun);

  [[nodiscard]] const std::string& name() const { return name_; }
  // The name with the parameters that are left to take: the text again, as it was changed.
  [[nodiscard]] std::string text() const;

  // A number in [low, high), or `fallback` if the key is absent.
  double take_number(std::string_view key, double fallback, double low, double high);
  // A whole number from `low` to `high`, both included.
  std::uint64_t take_integer(std::string_view key, std::uint64_t fallback, std::uint64_t low,
                             std::uint64_t high);
  // One of `choices`, as its index; the first is the default.
  std::size_t take_choice(std::string_view key, const std::vector<std::string>& choices);
  // on or off.
  bool take_switch(std::string_view key, bool fallback);
  // The value of `key` as written; empty only if it is absent.
  std::string take_word(std::string_view key);

  // The text's value of `key`, or `value` if it has none: then as if it had.
  std::string set_default(std::string_view key, std::string_view value);

  // Throws the sentence, preceded by the text and what it is.
  [[noreturn]] void fail(std::string_view sentence) const;
  // Throws: `key` must be `what` ("a number from 1 to below 2"), not `value`.
  [[noreturn]] void refuse(std::string_view key, std::string_view what,
                           std::string_view value) const;
  // Throws: the name is not one of `known`.
  [[noreturn]] void refuse_name(const std::vector<std::string>& known) const;
  // Checks that nothing is left to take; `keys` are the known parameters, for the sentence.
  void finish(const std::vector<std::string>& keys) const;

 private:
  std::string text_;
  std::string noun_;
  std::string name_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

}  // namespace tersewire
