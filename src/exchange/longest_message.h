// How long the messages of a job can be.
#pragma once

#include <cstdint>

#include "placement.h"

namespace tersewire {

// No message of the job's exchange has more bytes; about twice the longest that it has.
std::uint64_t longest_message(const Placement& placement);

}  // namespace tersewire
