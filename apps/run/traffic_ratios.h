// What traffic came to, in proportion, and the time that it takes.
#pragma once

#include <cstdint>

#include "tersewire/communicator.h"

namespace tersewire::apps {

// 0 where there are no values.
double bits_per_value(std::uint64_t bytes, std::uint64_t values);

// How many times smaller both directions were than 4 bytes a value; 0 where there were no bytes.
double compression_ratio(const Counters& counters);

// Seconds of so many bytes on a link.
double wire_seconds(double bytes, double bits_per_second);

}  // namespace tersewire::apps
