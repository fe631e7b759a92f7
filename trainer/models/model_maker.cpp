#include "trainer/models/model_maker.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kWeightDomain = 0x776569676874;  // "weight"

// char-rnn draws weights within this, and starts by remembering: forget gates' biases are 1.
constexpr float kLstmBound = 0.08F;
constexpr float kForgetBias = 1;

constexpr float kGptDeviation = 0.02F;

// The values that one output depends on, where each of shape[0] outputs has as many.
std::int64_t fan_in(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

// What is kept, scaled so that the mean stays. Drawn here: libtorch's generator is one for all
// threads.
torch::Tensor dropped_out(const torch::Tensor& x, double ratio, CounterRandom& random) {
  torch::Tensor mask = torch::empty(x.sizes(), torch::kFloat32);
  auto* values = mask.data_ptr<float>();
  const auto scale = static_cast<float>(1 / (1 - ratio));
  const auto drop = static_cast<float>(ratio);
  for (std::int64_t i = 0; i < mask.numel(); ++i) values[i] = random.uniform() < drop ? 0 : scale;
  return x * mask;
}

SampleKind with_classes(SampleKind takes, int classes) {
  if (classes > 0) takes.classes = classes;
  return takes;
}

}  // namespace

ModelMaker::ModelMaker(const SampleKind& takes, const ModelOptions& options)
    : options_(options),
      model_(new Model(with_classes(takes, options.classes), options.seed.value_or(0))) {
  if (options.classes < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a model needs at least 1 class, not " + std::to_string(options.classes));
  }
  if (options.dropout && !(*options.dropout >= 0 && *options.dropout < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the dropout ratio, --dropout, must be from 0 to below 1");
  }
}

void ModelMaker::weight(const std::string& name, const std::string& kind,
                        const std::vector<std::int64_t>& shape) {
  learned(name + ".weight", kind, uniform(shape, bound(shape)));
}

void ModelMaker::weight_and_bias(const std::string& name, const std::string& kind,
                                 const std::vector<std::int64_t>& shape) {
  weight(name, kind, shape);
  learned(name + ".bias", "bias",
          weights_ == Weights::kFanIn ? uniform({shape[0]}, bound(shape)) : constant(shape[0], 0));
}

void ModelMaker::layer_norm(const std::string& name, std::int64_t values) {
  learned(name + ".weight", "norm", constant(values, 1));
  learned(name + ".bias", "norm", constant(values, 0));
}

void ModelMaker::norm(const std::string& name, std::int64_t channels) {
  layer_norm(name, channels);
  model_->statistics_.push_back({name + ".running_mean", "norm", constant(channels, 0)});
  model_->statistics_.push_back({name + ".running_var", "norm", constant(channels, 1)});
}

void ModelMaker::lstm(const std::string& name, std::int64_t in, std::int64_t hidden) {
  learned(name + ".weight_ih", "recurrent", uniform({4 * hidden, in}, kLstmBound));
  learned(name + ".weight_hh", "recurrent", uniform({4 * hidden, hidden}, kLstmBound));
  torch::Tensor bias = uniform({4 * hidden}, kLstmBound);
  bias.slice(0, hidden, 2 * hidden).fill_(kForgetBias);
  learned(name + ".bias_ih", "bias", bias);
  learned(name + ".bias_hh", "bias", uniform({4 * hidden}, kLstmBound));
}

void ModelMaker::layer(Compute compute) {
  std::size_t param = 0;
  std::size_t statistic = 0;
  if (!model_->layers_.empty()) {
    const Model::Layer& last = model_->layers_.back();
    param = last.first_param + last.param_count;
    statistic = last.first_statistic + last.statistic_count;
  }
  model_->layers_.push_back({param, model_->parameters_.size() - param, statistic,
                             model_->statistics_.size() - statistic, std::move(compute)});
}

void ModelMaker::dropout(double ratio) {
  drops_ = true;
  ratio = options_.dropout.value_or(ratio);
  layer([ratio](const torch::Tensor& x, LayerInputs& in) {
    return in.training() && ratio > 0 ? dropped_out(x, ratio, in.random()) : x;
  });
}

std::unique_ptr<Model> ModelMaker::take() {
  if (options_.dropout && !drops_) {
    throw Error(ErrorCode::kInvalidArgument, "this model has no dropout; omit --dropout");
  }
  return std::move(model_);
}

void ModelMaker::learned(const std::string& name, const std::string& kind,
                         const torch::Tensor& value) {
  model_->parameters_.push_back({name, kind, value.requires_grad_()});
}

float ModelMaker::bound(const std::vector<std::int64_t>& shape) const {
  const std::int64_t in = fan_in(shape);
  const std::int64_t out = in / shape[1] * shape[0];
  switch (weights_) {
    case Weights::kHe:
      return std::sqrt(6 / static_cast<float>(in));
    case Weights::kGlorot:
      return std::sqrt(6 / static_cast<float>(in + out));
    case Weights::kGpt:
      return kGptDeviation * std::sqrt(3.0F);
    default:
      return 1 / std::sqrt(static_cast<float>(in));
  }
}

torch::Tensor ModelMaker::constant(std::int64_t elems, float value) const {
  const auto device = options_.seed ? torch::kCPU : torch::kMeta;
  return torch::full({elems}, value, torch::device(device).dtype(torch::kFloat32));
}

// In [-bound, bound), drawn here and not by libtorch, whose rounding depends on the processor.
torch::Tensor ModelMaker::uniform(const std::vector<std::int64_t>& shape, float bound) {
  const auto device = options_.seed ? torch::kCPU : torch::kMeta;
  torch::Tensor tensor = torch::empty(shape, torch::device(device).dtype(torch::kFloat32));
  if (!options_.seed) return tensor;
  CounterRandom random(*options_.seed, kWeightDomain, stream_++);
  auto* values = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = (2 * random.uniform() - 1) * bound;
  return tensor;
}

}  // namespace tersewire::trainer
