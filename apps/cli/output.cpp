#include "apps/cli/output.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/failures.h"

namespace tersewire::apps {

std::string json_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string two_decimals(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

std::string one_line(std::string sentence, char instead) {
  for (std::size_t i = 0; i < sentence.size(); ++i) {
    const auto c = static_cast<unsigned char>(sentence[i]);
    // U+0080 to U+009F have two bytes.
    const bool second = i > 0 && sentence[i - 1] == '\xC2' && c >= 0x80 && c < 0xA0;
    if (second) sentence[i - 1] = instead;
    if (second || c < ' ' || c == 0x7F) sentence[i] = instead;
  }
  return sentence;
}

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ReaderGone();
  fail_file("standard output", "written", errno);
}

void complain(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

namespace {

std::atomic<bool> quiet{false};

}  // namespace

void note(std::string_view text) noexcept {
  if (!quiet) complain(text);
}

void be_quiet() noexcept { quiet = true; }

}  // namespace tersewire::apps
