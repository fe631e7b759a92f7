#include "apps/run/run_json.h"

#include "apps/cli/job_options.h"
#include "apps/run/numbers/step_numbers.h"
#include "apps/run/numbers/traffic_ratios.h"
#include "trainer/loop/descent.h"

namespace tersewire::apps {
namespace {

nlohmann::json outer_json(const trainer::TrainConfig& config) {
  if (config.job.local_updates == 0) return {};
  return trainer::outer_text(config);
}

}  // namespace

nlohmann::json metrics_json(const trainer::StepReport& report) {
  nlohmann::json line;
  for (const StepNumber& number : step_numbers()) {
    if (number.key == nullptr) continue;
    const double value = number.read(report);
    if (number.whole) {
      line[number.key] = static_cast<std::uint64_t>(value);
    } else {
      line[number.key] = value;
    }
  }
  if (!report.codec.empty()) line["codec"] = report.codec;
  return line;
}

nlohmann::json observation_json(const trainer::Observation& observation) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const trainer::TensorObservation& tensor : observation.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"kind", to_string(tensor.kind)},
                       {"values", tensor.values},
                       {"codec", tensor.codec},
                       {"encoded_bytes", tensor.encoded_bytes},
                       {"bits_per_value", bits_per_value(tensor.encoded_bytes, tensor.values)},
                       {"not_finite", tensor.not_finite},
                       {"rms", tensor.rms},
                       {"relative_error", tensor.relative_error},
                       {"residual_rms", tensor.residual_rms},
                       {"residual_p95", tensor.residual_p95},
                       {"residual_max", tensor.residual_max},
                       {"histogram",
                        {{"limit", tensor.histograms.limit},
                         {"gradient", tensor.histograms.gradient},
                         {"decoded", tensor.histograms.decoded}}}});
  }
  return {{"step", observation.step},
          {"seconds", observation.seconds},
          {"test_accuracy", observation.test_accuracy},
          {"test_loss", observation.test_loss},
          {"tensors", tensors}};
}

nlohmann::json config_json(const trainer::TrainConfig& config) {
  nlohmann::json json;
  trainer::visit_settings(config, [&](const trainer::Setting& setting, const auto& member) {
    json[trainer::json_key_of(setting)] = setting_json(member);
  });
  json["servers"] = servers_json(config, trainer::server_nodes(config));
  json["outer"] = outer_json(config);
  return json;
}

nlohmann::json servers_json(const trainer::TrainConfig& config, int servers) {
  if (config.job.servers == Job::kColocated) return trainer::kColocatedText;
  return servers;
}

}  // namespace tersewire::apps
