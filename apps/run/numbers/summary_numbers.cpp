#include "apps/run/numbers/summary_numbers.h"

#include <cmath>

#include "apps/run/numbers/json_object.h"
#include "apps/run/numbers/traffic_ratios.h"

namespace tersewire::apps {

bool diverged(const nlohmann::json& summary) {
  return !std::isfinite(number_of(summary, "final_loss")) ||
         std::isfinite(number_of(summary, "diverged_step"));
}

SummaryNumbers mean(std::span<const SummaryNumbers> runs) {
  SummaryNumbers means;
  for (const auto& [key, member] : kSummaryNumbers) {
    double sum = 0;
    for (const SummaryNumbers& run : runs) sum += run.*member;
    means.*member = sum / static_cast<double>(runs.size());
  }
  return means;
}

double modelled_step_seconds(const SummaryNumbers& numbers, double bits_per_second) {
  return numbers.compute_seconds + numbers.codec_seconds +
         wire_seconds(numbers.busiest_node_bytes, bits_per_second);
}

}  // namespace tersewire::apps
