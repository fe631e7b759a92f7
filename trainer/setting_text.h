// A setting of a job that is a name with parameters, in the syntax of codecs and exchanges: NAME or
// NAME:KEY=VALUE,KEY=VALUE.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tersewire::trainer {

// The whole of `text` as a finite number; nothing where it is none.
std::optional<double> parsed_number(std::string_view text);

// The parts of such a text. Each parameter is taken by its reader once; finish() refuses what
// nobody took, so that a misspelt key never passes. All functions throw kInvalidArgument with a
// sentence that names the text, the key and what it may be.
class SettingText {
 public:
  // `noun` is what the text names, for sentences.
  SettingText(const std::string& text, const std::string& noun);

  [[nodiscard]] const std::string& name() const { return name_; }

  // A number in [low, high), or `fallback` where the key is absent.
  double take_number(const std::string& key, double fallback, double low, double high);
  // The value of `key` as it is written; nothing where it is absent.
  std::optional<std::string> take_word(const std::string& key);

  // Throws the sentence, behind what the text is.
  [[noreturn]] void fail(const std::string& sentence) const;
  // Throws: `key` must be `what`, not `value`.
  [[noreturn]] void refuse(const std::string& key, const std::string& what,
                           const std::string& value) const;
  // Throws: there is no such name, but `known` ("sgd and adam").
  [[noreturn]] void refuse_name(const std::string& known) const;
  // Nothing is left to take; `keys` are the parameters there are.
  void finish(std::initializer_list<const char*> keys) const;

 private:
  std::string text_;
  std::string noun_;
  std::string name_;
  std::map<std::string, std::string> parameters_;
};

}  // namespace tersewire::trainer
