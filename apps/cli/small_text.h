// Texts that people write by hand: recipes, and their own defaults.
#pragma once

#include <optional>
#include <string>

namespace tersewire::apps {

// What such a file holds; nothing where there is none. Throws an Error that names it where it
// cannot be read, is larger than 64 KiB or is no text.
std::optional<std::string> small_text_if_exists(const std::string& path);

}  // namespace tersewire::apps
