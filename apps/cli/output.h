// What commands write for people and other programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tersewire::apps {

// JSON for people (indent 2) or on one line (-1); what is not UTF-8, as a path may be, is replaced.
std::string json_text(const nlohmann::json& json, int indent = 2);

// null where there is none.
nlohmann::json optional_json(const std::optional<double>& value);

// For a table; "-" where there is none.
std::string two_decimals(const std::optional<double>& value);

// A sentence on one line, whatever a file's name, a library or a peer brings along: what a terminal
// would obey is replaced, byte by byte.
std::string one_line(std::string sentence, char instead = ' ');

// Writes to stdout. Throws where that fails (a full disk behind it), and ReaderGone.
void print(std::string_view text);

// Writes to stderr. What nobody can read is no reason to fail.
void complain(std::string_view text) noexcept;

// The same for what need not be said, unless be_quiet() has been called (--quiet).
void note(std::string_view text) noexcept;
void be_quiet() noexcept;

}  // namespace tersewire::apps
