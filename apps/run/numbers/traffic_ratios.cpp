#include "apps/run/numbers/traffic_ratios.h"

#include "apps/cli/quantities.h"

namespace tersewire::apps {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double bits_per_value(std::uint64_t bytes, std::uint64_t values) {
  return 8 * ratio(static_cast<double>(bytes), static_cast<double>(values));
}

double compression_ratio(const Counters& counters) {
  return sizeof(float) * ratio(static_cast<double>(counters.pushed_values + counters.pulled_values),
                               static_cast<double>(counters.pushed_bytes + counters.pulled_bytes));
}

std::string rate_name(double bits_per_second) { return rate_text(bits_per_second, 6); }

double wire_seconds(double bytes, double bits_per_second) { return 8 * bytes / bits_per_second; }

}  // namespace tersewire::apps
