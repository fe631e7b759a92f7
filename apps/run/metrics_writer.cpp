#include "apps/run/metrics_writer.h"

#include <cstdint>
#include <utility>

#include "apps/cli/interrupt.h"
#include "apps/run/numbers/step_numbers.h"
#include "apps/run/numbers/traffic_ratios.h"
#include "apps/run/run_json.h"

namespace tersewire::apps {
namespace {

// Makes a number of a line count on from the one before.
template <typename Number>
void add_to(nlohmann::json& line, const nlohmann::json& before, const char* name) {
  if (!before.is_object()) return;
  const auto found = before.find(name);
  if (found == before.end() || !found->is_number()) return;
  line[name] = line[name].get<Number>() + found->get<Number>();
}

}  // namespace

template <typename Task>
void MetricsWriter::attempt(const Task& task) {
  if (failure_) return;
  try {
    task();
  } catch (const Error& error) {
    failure_ = error;
    interrupted = true;
  }
}

void MetricsWriter::add(const trainer::StepReport& report) {
  nlohmann::json line = since_the_start(metrics_json(report));
  if (!decided_.empty()) line["decisions"] = std::exchange(decided_, {});
  attempt([&] { directory_.add_metrics(line); });
}

void MetricsWriter::add(const trainer::Observation& observation) {
  nlohmann::json line = observation_json(observation);
  add_to<double>(line, before_, "seconds");
  attempt([&] { directory_.add_observation(line); });
}

nlohmann::json MetricsWriter::since_the_start(nlohmann::json line) const {
  for (const StepNumber& number : step_numbers()) {
    if (number.key == nullptr || number.kind != NumberKind::kTotal) continue;
    if (number.whole) {
      add_to<std::uint64_t>(line, before_, number.key);
    } else {
      add_to<double>(line, before_, number.key);
    }
  }
  if (!before_.is_object() || !before_.contains("push_values")) return line;
  for (const std::string way : {"push", "pull"}) {
    line[way + "_bits_per_value"] = bits_per_value(line[way + "_bytes"].get<std::uint64_t>(),
                                                   line[way + "_values"].get<std::uint64_t>());
  }
  return line;
}

}  // namespace tersewire::apps
