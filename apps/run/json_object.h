// Objects of JSON files that come from anywhere: what is not there is a NaN, or nothing.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tersewire::apps {

// The object that a file holds; null where it holds none, and where there is no such file. Throws
// an Error where it is too large to be one of ours or cannot be read.
nlohmann::json json_object_if_any(const std::filesystem::path& file);

// Members of an object: a NaN, or nothing, where it has none of that name or of another type.
double number_of(const nlohmann::json& object, const std::string& key);
std::string text_of(const nlohmann::json& object, const std::string& key);

}  // namespace tersewire::apps
