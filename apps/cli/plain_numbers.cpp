#include "apps/cli/plain_numbers.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace tersewire::apps {
namespace {

template <typename Number>
bool is_in_range(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end;
}

bool is_decimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

constexpr const char* kNoNumber = "'' is not a number";

std::string wrong_with_real_number(const std::string& text) {
  double number = 0;
  if (!CLI::detail::lexical_cast(text, number)) return fmt::format("{} is not a number", text);
  return std::isfinite(number) ? "" : fmt::format("{} is not a finite number", text);
}

}  // namespace

std::string wrong_with_whole_number(const std::string& text, bool may_be_negative) {
  const std::string_view view = text;
  const bool negative = view.starts_with('-');
  const std::string_view digits = view.substr(negative ? 1 : 0);
  if (text.empty()) return kNoNumber;
  if (!is_decimal(digits)) return fmt::format("{} is not a whole number", text);
  if (negative && !may_be_negative) return fmt::format("{} is negative", text);
  if (digits.size() > 1 && digits.front() == '0') {
    return fmt::format("{} begins with a 0, which some read as octal", text);
  }
  const bool fits =
      may_be_negative ? is_in_range<std::int64_t>(view) : is_in_range<std::uint64_t>(view);
  return fits ? "" : fmt::format("{} is too large a number", text);
}

void take_plain_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // The type comes first, then what validators add to it.
    const std::string type = option->get_type_name();
    const bool is_number =
        type.starts_with("UINT") || type.starts_with("INT") || type.starts_with("FLOAT");
    // Before all others: that of a range would show nothing.
    if (is_number) {
      option->transform(CLI::Validator(
          [](const std::string& text) -> std::string { return text.empty() ? kNoNumber : ""; },
          ""));
    }
    if (type.starts_with("UINT")) {
      option->check([](const std::string& text) { return wrong_with_whole_number(text, false); });
    } else if (type.starts_with("INT")) {
      option->check([](const std::string& text) { return wrong_with_whole_number(text, true); });
    } else if (type.starts_with("FLOAT")) {
      option->check(wrong_with_real_number);
    }
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    take_plain_numbers(*command);
}

}  // namespace tersewire::apps
