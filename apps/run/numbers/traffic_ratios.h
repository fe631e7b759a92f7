// What traffic came to, in proportion, and the time that it takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tersewire/communicator.h"

namespace tersewire::apps {

// 0 where b is.
double ratio(double a, double b);

// 0 where there are no values.
double bits_per_value(std::uint64_t bytes, std::uint64_t values);

// How many times smaller both directions were than 4 bytes a value; 0 where there were no bytes.
double compression_ratio(const Counters& counters);

// Links that steps are modelled for unless others are named, as --rates has them.
inline constexpr std::array kUsualRates{"10mbit", "100mbit", "1gbit"};

// "10 Mbit/s": a rate's name in summary.json and in reports. Others have others.
std::string rate_name(double bits_per_second);

// Seconds of so many bytes on a link.
double wire_seconds(double bytes, double bits_per_second);

}  // namespace tersewire::apps
