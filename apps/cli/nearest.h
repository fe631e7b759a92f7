// What somebody who mistyped a name probably meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tersewire::apps {

// The name that takes the fewest insertions, deletions and replacements of a character to become
// `wrong`, of several the first, where these are no more than a third of its letters; nothing where
// no name is so near. Any thread. Cost: the product of the lengths, summed over the names.
std::optional<std::string> nearest(std::string_view wrong, const std::vector<std::string>& names);

// "; did you mean 'NAME'?", or where no name is so near "; ADVICE", or nothing without one.
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names,
                         const std::string& advice = {});

}  // namespace tersewire::apps
