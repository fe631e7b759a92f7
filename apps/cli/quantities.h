// Numbers as people read them, in the largest unit that leaves at least 1: three digits that count,
// unless said otherwise, and whole numbers above.
#pragma once

#include <string>

namespace tersewire::apps {

// "1.2", "45", "1234" with two.
std::string digits_text(double value, int digits);

// "0.1250" with four; "nan", whatever its sign bit.
std::string decimals_text(double value, int decimals);

// "512 B", "4.13 kB".
std::string bytes_text(double bytes);

// "83 us", "2.76 s", "2 min 5 s", "3 h 12 min", "4.1 days".
std::string seconds_text(double seconds);

// "10 Mbit/s".
std::string rate_text(double bits_per_second, int digits = 3);

}  // namespace tersewire::apps
