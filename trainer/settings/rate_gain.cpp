#include "trainer/settings/rate_gain.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "tersewire/setting_text.h"

namespace tersewire::trainer {
namespace {

double gain_of(const std::string& codec, const Job& job) {
  return adaptive_rate_gain(job.tensors, choose_codecs(job.policy, codec, job.tensors));
}

}  // namespace

bool is_adaptive(const TrainConfig& config) {
  return SettingText(config.optimizer, "optimizer").name().starts_with("adam");
}

// Local updates take their steps with gradients of their own.
bool has_rate_gain(const TrainConfig& config) {
  return is_adaptive(config) && config.job.local_updates == 0 &&
         !exchange_traits(config.job.exchange).averages_weights;
}

void check_rate_gain(const TrainConfig& config) {
  if (!config.rate_gain) return;
  if (!(*config.rate_gain > 0 && std::isfinite(*config.rate_gain))) {
    throw Error(ErrorCode::kInvalidArgument,
                "the rate gain, --rate-gain, must be a finite number above 0");
  }
  if (has_rate_gain(config)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a rate gain is for adam and adamw, where gradients are exchanged; omit it, or "
              "change the learning rate");
}

std::function<double(std::uint64_t exchange)> rate_gain(const TrainConfig& config, const Job& job) {
  const double given = config.rate_gain.value_or(1);
  if (config.rate_gain || !has_rate_gain(config)) {
    return [given](std::uint64_t) { return given; };
  }
  if (!job.ladder) {
    return [gain = gain_of(job.push_codec, job)](std::uint64_t) { return gain; };
  }
  std::vector<double> gains;
  for (const std::string& codec : job.ladder->codecs) {
    gains.push_back(gain_of(codec, job));
  }
  return [gains = std::move(gains), rung = job.ladder->rung](std::uint64_t exchange) {
    return gains[rung(exchange)];
  };
}

}  // namespace tersewire::trainer
