// The text syntax of codecs and exchanges: NAME or NAME:KEY=VALUE,KEY=VALUE.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tersewire/codec.h"

namespace tersewire {

// The whole of `text` as a number; nothing where it is none, or one that T does not hold.
template <typename T>
std::optional<T> parsed_number(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

// The parts of such a text. Each parameter is taken by its reader once; finish() refuses what
// nobody took, so that a misspelt key never passes. All functions throw kInvalidArgument with a
// sentence that names the text, the key and what it may be.
class CodecText {
 public:
  // `noun` is what the text names, for sentences.
  explicit CodecText(std::string_view text, std::string_view noun = "codec");

  [[nodiscard]] const std::string& name() const { return name_; }

  // A number in [low, high), or `fallback` where the key is absent.
  double take_number(std::string_view key, double fallback, double low, double high);
  // A whole number from `low` to `high`, both included.
  std::uint64_t take_integer(std::string_view key, std::uint64_t fallback, std::uint64_t low,
                             std::uint64_t high);
  // One of `choices`, as its index; the first is the default.
  std::size_t take_choice(std::string_view key, const std::vector<std::string>& choices);
  // on or off.
  bool take_switch(std::string_view key, bool fallback);

  // The value of `key` as it is written; empty where it is absent.
  std::string take_word(std::string_view key);

  // What the text says of `key`, and `value` where it says nothing: then as if it had.
  std::string set_default(std::string_view key, std::string_view value);

  // Throws: `key` must be `what` ("a number from 1 to below 2"), not `value`.
  [[noreturn]] void refuse(std::string_view key, std::string_view what,
                           std::string_view value) const;
  // `known` are the parameters there are, for the sentence.
  void finish(std::span<const CodecParameter> known) const;

 private:
  std::string text_;
  std::string noun_;
  std::string name_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

// How listings describe non-finite=send|reject.
CodecParameter non_finite_parameter();

// The parameters that every codec has that loses something.
struct EncoderOptions {
  bool error_feedback = true;      // ef=on|off: keep a residual
  bool reject_not_finite = false;  // non-finite=send|reject
  // lead=L: how many times the input counts when what is sent is chosen (spec/wire-format.md,
  // "Lead"); only with a residual. 1: once, as in the papers.
  float lead = 1;
  // Whether the codec has a lead: those that keep a residual unless told not to.
  bool has_lead = false;

  // Takes them from a text; `error_feedback` says the codec's default, `lead` that of its lead.
  static EncoderOptions take(CodecText& text, bool error_feedback, float lead = 1);
  // A codec's own parameters and these, for its description; `error_feedback` as above, `lead` the
  // default in words.
  static std::vector<CodecParameter> describe(std::vector<CodecParameter> own, bool error_feedback,
                                              std::string lead = "1");
  // "lead=1,ef=on,non-finite=send", which ends the codec's text.
  [[nodiscard]] std::string text() const;
};

}  // namespace tersewire
