// Tells what watches a run of two steps that never were, so that tests know every number.
//
//   telemetry_driver tensorboard DIR [RESUMED_AFTER]
//   telemetry_driver metrics ADDRESS     until standard input ends
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/output.h"
#include "apps/run/watch/step_listener.h"

using namespace tersewire;

namespace {

trainer::Histograms histograms(double limit) {
  trainer::Histograms made{.limit = limit};
  for (std::size_t i = 5; i < trainer::Histograms::kBins - 2; ++i) {
    made.gradient[i] = i;
    made.decoded[i] = 2 * i;
  }
  return made;
}

trainer::Observation observation() {
  const auto tensor = [](const char* name, TensorKind kind, std::uint64_t values,
                         std::uint64_t bytes, double error, double residual, double limit) {
    return trainer::TensorObservation{.name = name,
                                      .kind = kind,
                                      .values = values,
                                      .codec = "3lc",
                                      .encoded_bytes = bytes,
                                      .rms = 0.5,
                                      .relative_error = error,
                                      .residual_rms = residual,
                                      .histograms = histograms(limit)};
  };
  return {.step = 2,
          .seconds = 1.5,
          .test_accuracy = 0.625,
          .tensors = {tensor("c1.weight", TensorKind::kConv, 100, 25, 0.5, 0.3, 1.26),
                      tensor("c2.weight", TensorKind::kConv, 300, 75, 0.25, 0.1, 0),
                      tensor("b", TensorKind::kBias, 4, 16, 0, 0, 0.5)}};
}

trainer::StepReport step(std::uint64_t number) {
  trainer::StepReport report;
  report.step = number;
  report.loss = number == 1 ? 2.5 : std::numeric_limits<double>::quiet_NaN();
  report.accuracy = 0.25;
  report.seconds = 0.75 * static_cast<double>(number);
  report.counters.pushed_bytes = 1000 * number;
  report.counters.pulled_bytes = 3000 * (number - 1);
  report.counters.pushed_values = 4000 * number;
  report.counters.pulled_values = 4000 * (number - 1);
  report.counters.not_finite_tensors = number - 1;
  report.counters.encode_seconds = 0.125 * static_cast<double>(number);
  report.counters.decode_seconds = 0.25 * static_cast<double>(number);
  report.counters.wait_seconds = 0.0625 * static_cast<double>(number);
  return report;
}

void tell(apps::StepListener& listener) {
  listener.on_step(step(1));
  listener.on_observation(observation());
  listener.on_step(step(2));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "tensorboard") {
      apps::be_quiet();  // what fails is said all the same
      const std::uint64_t resumed_after = argc > 3 ? std::stoull(argv[3]) : 0;
      tell(*apps::make_tensorboard_writer(argv[2], {{"policy", "*:3lc\n|a|"}}, resumed_after));
    } else {
      const auto server = apps::make_metrics_server(argv[2]);
      tell(*server);
      std::cin.ignore(std::numeric_limits<std::streamsize>::max());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
