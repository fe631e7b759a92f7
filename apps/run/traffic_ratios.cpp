#include "apps/run/traffic_ratios.h"

#include "apps/cli/quantities.h"

namespace tersewire::apps {
namespace {

double ratio(std::uint64_t a, std::uint64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0;
}

}  // namespace

double bits_per_value(std::uint64_t bytes, std::uint64_t values) {
  return 8 * ratio(bytes, values);
}

double compression_ratio(const Counters& counters) {
  return sizeof(float) * ratio(counters.pushed_values + counters.pulled_values,
                               counters.pushed_bytes + counters.pulled_bytes);
}

std::string rate_name(double bits_per_second) { return rate_text(bits_per_second, 6); }

double wire_seconds(double bytes, double bits_per_second) { return 8 * bytes / bits_per_second; }

}  // namespace tersewire::apps
