// What traffic came to, in proportion.
#pragma once

#include <cstdint>

#include "tersewire/communicator.h"

namespace tersewire::apps {

// 0 where there are no values.
double bits_per_value(std::uint64_t bytes, std::uint64_t values);

// How many times smaller both directions were than 4 bytes a value; 0 where there were no bytes.
double compression_ratio(const Counters& counters);

}  // namespace tersewire::apps
