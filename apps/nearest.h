// What somebody who mistyped a name probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tersewire::apps {

// The name that takes the fewest insertions, deletions and replacements of a character to become
// `wrong`; of several the first. Requires one name at least. Any thread. Cost: the product of the
// lengths, summed over the names.
const std::string& nearest(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace tersewire::apps
