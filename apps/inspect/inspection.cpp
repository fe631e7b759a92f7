#include "apps/inspect/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "apps/cli/output.h"
#include "apps/files/read_file.h"
#include "apps/run/numbers/json_object.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShown = 200;

// What a terminal would obey becomes a question mark.
std::string printable(std::string text) {
  text = one_line(std::move(text), '?');
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

// "s=1.75 layout=neighbours ..."
std::string plain_parameters(const Json& parameters) {
  std::string text;
  for (const auto& [key, value] : parameters.items()) {
    const std::string shown =
        value.is_boolean() ? (value.get<bool>() ? "on" : "off") : plain(value);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", printable(key), shown);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

std::string plain(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return printable(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return printable(value.dump());
}

std::string plain(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? "-" : plain(*found);
}

std::string lines_of(const Json& json, std::string_view indent) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    if (key == "frames") continue;
    text += fmt::format("{}{:<18} {}\n", indent, printable(key),
                        value.is_object() ? plain_parameters(value) : plain(value));
  }
  return text;
}

Json values_json(const std::vector<float>& values) {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  double squares = 0;
  std::uint64_t finite = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    squares += value * value;
    ++finite;
  }
  const bool any = finite > 0;
  return {{"values", values.size()},
          {"least", any ? Json(least) : Json()},
          {"greatest", any ? Json(greatest) : Json()},
          {"rms", any ? Json(std::sqrt(squares / static_cast<double>(finite))) : Json()},
          {"not_finite", values.size() - finite}};
}

Json read_json_object(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    throw Error(ErrorCode::kDataLoss, path.string() + " is not a regular file; use another copy");
  }
  Json json = parse_json_object<Json>(string_of(read_file(path.string())));
  if (json.is_object()) return json;
  throw Error(ErrorCode::kDataLoss,
              path.string() + " holds no JSON object, or is cut off; use another copy");
}

}  // namespace tersewire::apps
