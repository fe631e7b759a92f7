// The text syntax of codecs: NAME or NAME:KEY=VALUE,KEY=VALUE.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tersewire {

// The parts of a codec's text. Each parameter is taken by its reader once; finish() refuses what
// nobody took, so that a misspelt key never passes. All functions throw kInvalidArgument with a
// sentence that names the text, the key and what it may be.
class CodecText {
 public:
  explicit CodecText(std::string_view text);

  [[nodiscard]] const std::string& name() const { return name_; }

  // A number in [low, high), or `fallback` where the key is absent.
  double take_number(std::string_view key, double fallback, double low, double high);
  // One of `choices`, as its index; the first is the default.
  std::size_t take_choice(std::string_view key, const std::vector<std::string>& choices);
  // on or off.
  bool take_switch(std::string_view key, bool fallback);

  // `known` lists the keys there are, for the sentence.
  void finish(std::string_view known) const;

 private:
  // The value of `key`, removed from what is left; empty where it is absent.
  std::string take(std::string_view key);

  std::string text_;
  std::string name_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

// The parameters that every codec has.
struct EncoderOptions {
  bool error_feedback = true;      // ef=on|off: keep a residual
  bool reject_not_finite = false;  // non-finite=send|reject

  // Takes them from a text; `error_feedback` says the codec's default.
  static EncoderOptions take(CodecText& text, bool error_feedback);
  // ",non-finite=send", after what the codec says of itself.
  [[nodiscard]] std::string text() const;
};

}  // namespace tersewire
