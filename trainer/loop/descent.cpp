#include "trainer/loop/descent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tersewire/error.h"
#include "tersewire/setting_text.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/loop/evaluation.h"
#include "trainer/settings/outer_optimizer.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kAverage = "average";

void require(bool holds, const char* sentence) {
  if (!holds) throw Error(ErrorCode::kInvalidArgument, sentence);
}

void check_numbers(const TrainConfig& config) {
  const auto is_penalty = [](double factor) { return factor >= 0 && std::isfinite(factor); };
  require(config.learning_rate > 0 && std::isfinite(config.learning_rate),
          "the learning rate, --lr, must be a finite number above 0");
  require(config.momentum >= 0 && config.momentum < 1,
          "the momentum, --momentum, must be from 0 to below 1");
  require(is_penalty(config.weight_decay),
          "the weight decay, --weight-decay, must be a finite number not below 0");
  require(is_penalty(config.l1), "the l1 factor, --l1, must be a finite number not below 0");
  require(config.clip >= 0 && std::isfinite(config.clip),
          "the norm that gradients are clipped to, --clip, must be a finite number not below 0");
  require(config.ema >= 0 && config.ema < 1,
          "the decay of the moving average, --ema, must be from 0 to below 1");
}

OptimizerSettings optimizer_settings(const TrainConfig& config) {
  check_numbers(config);
  OptimizerSettings settings;
  settings.momentum = config.momentum;
  settings.weight_decay = config.weight_decay;
  settings.l1 = config.l1;
  SettingText text(config.optimizer, "optimizer");
  using Kind = OptimizerSettings::Kind;
  if (text.name() == "adam" || text.name() == "adamw") {
    settings.kind = text.name() == "adam" ? Kind::kAdam : Kind::kAdamW;
    settings.beta1 = text.take_number("beta1", settings.beta1, 0, 1);
    settings.beta2 = text.take_number("beta2", settings.beta2, 0, 1);
    settings.eps = text.take_number("eps", settings.eps, 0, 1);
    text.finish({"beta1", "beta2", "eps"});
  } else if (text.name() == "sgd") {
    text.finish({});
  } else if (text.name() == "nesterov") {
    settings.kind = Kind::kNesterov;
    text.finish({});
    require(settings.momentum > 0, "nesterov needs momentum; give one above 0, or use sgd");
  } else {
    text.refuse_name({"sgd", "nesterov", "adam", "adamw"});
  }
  return settings;
}

// The outer optimizer's rate stays as it is: what it is given shrinks with the workers' own rates.
TrainConfig outer_config(TrainConfig config) {
  const OuterOptimizer outer = outer_optimizer(outer_text(config));
  require(!(outer.momentum > 0 && config.job.push_codec == kAutoCodec),
          "an outer optimizer's momentum needs rounds of equal length, but with codec auto they "
          "vary; use --outer sgd:lr=1, or name a codec");
  config.optimizer = outer.nesterov ? "nesterov" : "sgd";
  config.learning_rate = outer.learning_rate;
  config.momentum = outer.momentum;
  config.scale_learning_rate = false;
  config.schedule = "constant";
  config.warm_up_steps = 0;
  config.weight_decay = config.l1 = 0;
  return config;
}

// Local steps end with a whole round.
Schedule schedule_of(const TrainConfig& config) {
  const auto round = static_cast<std::uint64_t>(config.job.local_steps);
  const std::uint64_t steps = ((config.steps - 1) / round + 1) * round;
  return {config.schedule,
          {.steps = steps, .warm_up = config.warm_up_steps, .workers = config.job.workers}};
}

template <typename Value>
std::string names_of(const std::map<std::string, Value>& buffers) {
  std::string names;
  for (const auto& [name, values] : buffers) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "nothing" : names;
}

}  // namespace

std::string outer_text(const TrainConfig& config) {
  if (!config.outer.empty()) return config.outer;
  return default_outer(config.job.push_codec == kAutoCodec ? 1 : config.job.local_updates);
}

void check_descent(const TrainConfig& config) {
  optimizer_settings(config);
  check_rate_gain(config);
  schedule_of(config);
  optimizer_settings(owners_config(config));
  require(config.job.local_updates > 0 || config.outer.empty(),
          "an outer optimizer applies the mean model delta of local updates; use local updates, or "
          "no outer optimizer");
}

TrainConfig owners_config(const TrainConfig& config) {
  return config.job.local_updates > 0 ? outer_config(config) : config;
}

TrainConfig workers_config(TrainConfig config) {
  config.ema = 0;  // the shared model's is tested
  return config;
}

std::size_t arrays_of_descent(const TrainConfig& config) {
  float value = 0;
  const auto optimizer = Optimizer::make(optimizer_settings(config), &value, 1);
  return optimizer->buffers().size() + (config.ema > 0 ? 1 : 0);
}

Descent::Descent(const TrainConfig& config, const Network& network, const std::vector<Part>& parts,
                 RateGain gain)
    : rate_(config.learning_rate * (config.scale_learning_rate ? config.job.workers : 1)),
      gain_(std::move(gain)),
      schedule_(schedule_of(config)),
      steps_between_(static_cast<std::uint64_t>(config.job.local_steps)),
      ema_(config.ema),
      averages_(parts.size()),
      taken_(parts.size(), 0),
      buffers_(parts.size()) {
  const OptimizerSettings settings = optimizer_settings(config);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Network::Parameter& parameter = network.parameters()[parts[i].tensor];
    const std::span<float> values = values_of(parameter).subspan(parts[i].begin, parts[i].elems);
    names_.push_back(parameter.name);
    values_.push_back(values);
    optimizers_.push_back(Optimizer::make(settings, values.data(), values.size()));
    for (const Optimizer::Buffer& buffer : optimizers_[i]->buffers()) {
      buffers_[i].emplace(buffer.name, std::span(buffer.values, values.size()));
    }
    if (ema_ == 0) continue;
    averages_[i].assign(values.begin(), values.end());
    buffers_[i].emplace(kAverage, averages_[i]);
  }
}

void Descent::take_step(std::size_t part, std::span<const float> gradient, std::span<float> delta) {
  advance(part, gradient, delta);
  const std::span<const float> values = values_[part];
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = values[i] - delta[i];
}

void Descent::propose_step(std::size_t part, std::span<const float> gradient,
                           std::span<float> delta) {
  advance(part, gradient, delta);
  const std::span<float> values = values_[part];
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const float after = std::exchange(values[i], delta[i]);
    delta[i] = after - values[i];
  }
}

void Descent::advance(std::size_t part, std::span<const float> gradient, std::span<float> before) {
  std::ranges::copy(values_[part], before.begin());
  const std::uint64_t taken = taken_[part]++;
  const double rate = rate_ * schedule_.at(taken * steps_between_) * gain_(taken + 1);
  optimizers_[part]->step(gradient.data(), rate, taken);
  update_average(part);
}

void Descent::update_average(std::size_t part) {
  if (ema_ == 0) return;
  const auto taken = static_cast<double>(taken_[part]);
  const auto share = static_cast<float>(1 - std::min(ema_, (1 + taken) / (10 + taken)));
  const std::span<const float> values = values_[part];
  std::vector<float>& average = averages_[part];
  for (std::size_t i = 0; i < average.size(); ++i) average[i] += share * (values[i] - average[i]);
}

std::span<float> Descent::average(std::size_t part) { return averages_[part]; }

void Descent::swap_averages() {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    std::ranges::swap_ranges(averages_[i], values_[i]);
  }
}

PartDescentState Descent::state(std::size_t part) const {
  PartDescentState state{.steps = taken_[part], .buffers = {}};
  for (const auto& [name, values] : buffers_[part]) {
    state.buffers.emplace(name, std::vector<float>(values.begin(), values.end()));
  }
  return state;
}

void Descent::resume(std::size_t part, const PartDescentState& saved) {
  const auto& buffers = buffers_[part];
  const auto refuse = [&](const std::string& sentence) {
    throw Error(ErrorCode::kFailedPrecondition, "tensor '" + names_[part] + "': " + sentence);
  };
  if (names_of(saved.buffers) != names_of(buffers)) {
    refuse("the checkpoint has " + names_of(saved.buffers) + ", but the run needs " +
           names_of(buffers) +
           "; resume with the optimizer and the moving average that were saved");
  }
  for (const auto& [name, values] : saved.buffers) {
    if (values.size() == values_[part].size()) continue;
    refuse("the checkpoint has " + std::to_string(values.size()) + " values of " + name +
           ", but the tensor has " + std::to_string(values_[part].size()) +
           "; resume with the model that was saved");
  }
  taken_[part] = saved.steps;
  for (const auto& [name, values] : saved.buffers) {
    std::ranges::copy(values, buffers.at(name).begin());
  }
}

}  // namespace tersewire::trainer
