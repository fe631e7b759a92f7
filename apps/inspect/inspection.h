// What `tersewire inspect` says of each kind of thing that the program writes. All of it may come
// from anyone: it is checked before it is believed, and what is shown to people holds no control
// characters.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tersewire/bytes.h"

namespace tersewire::apps {

using Json = nlohmann::ordered_json;

struct Inspection {
  Json json;
  std::string text;  // the same for people, in whole lines
};

// Throws an Error where the bytes are malformed or damaged.
Inspection inspect_tensor_file(ByteView bytes);

// Whether the bytes begin as a safetensors file does.
bool looks_like_tensor_file(ByteView bytes);

// Whether a directory has something of that kind in it.
bool looks_like_checkpoint(const std::filesystem::path& directory);
bool looks_like_comparison(const std::filesystem::path& directory);

// Throw an Error that names the file where nothing can be said; one file of several that is damaged
// is part of what is said. Every file of a checkpoint is read, one at a time.
Inspection inspect_checkpoint(const std::filesystem::path& directory);
Inspection inspect_run(const std::filesystem::path& directory);
Inspection inspect_comparison(const std::filesystem::path& directory);

// What of values is shown: how many, least, greatest and root mean square of those that are finite,
// and how many are not.
Json values_json(const std::vector<float>& values);

// The object of a JSON file. Throws an Error that names the file where it is missing, is no regular
// file or holds something else.
Json read_json_object(const std::filesystem::path& path);

// A value as people read it; null is "-".
std::string plain(const Json& value);
// One member of an object; "-" where there is none.
std::string plain(const Json& object, const char* key);
// "KEY VALUE" in lines, except for the key "frames"; objects as "a=1 b=on".
std::string lines_of(const Json& json, std::string_view indent);

}  // namespace tersewire::apps
