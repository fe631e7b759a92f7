// Objects of JSON files that come from anywhere: what is not there is a NaN, or nothing.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tersewire::apps {

// The object of a text; null where it is none, or nested deeper than anything of ours: what goes
// through it again is recursive.
template <typename Json = nlohmann::json>
Json parse_json_object(std::string_view text) {
  constexpr int kMaxDepth = 32;
  bool deep = false;
  // What is too deep is left out as it is read.
  const auto is_kept = [&](int depth, typename Json::parse_event_t /*event*/, Json& /*parsed*/) {
    deep = deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  Json json = Json::parse(text, is_kept, false);
  return json.is_object() && !deep ? json : Json();
}

// The object that a file holds; null where it holds none, and where there is no such file. Throws
// an Error where it is too large to be one of ours or cannot be read.
nlohmann::json json_object_if_any(const std::filesystem::path& file);

// Members of an object: a NaN, or nothing, where it has none of that name or of another type.
double number_of(const nlohmann::json& object, const std::string& key);
std::string text_of(const nlohmann::json& object, const std::string& key);

}  // namespace tersewire::apps
