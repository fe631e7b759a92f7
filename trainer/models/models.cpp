#include "trainer/models/models.h"

#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/dataset.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kWeightDomain = 0x776569676874;  // "weight"

constexpr std::int64_t kInputPixels = std::int64_t{Model::kInputSide} * Model::kInputSide;

// Makes a model's parameters; each draws from a stream of its own.
class ParameterMaker {
 public:
  explicit ParameterMaker(std::uint64_t seed) : seed_(seed) {}

  // A weight and its bias. Both are bounded by the weight's fan-in, the values that one output
  // depends on.
  std::vector<Parameter> pair(const std::string& layer, const std::string& kind,
                              const std::vector<std::int64_t>& shape) {
    const std::int64_t fan_in =
        std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
    const float bound = 1 / std::sqrt(static_cast<float>(fan_in));
    return {{layer + ".weight", kind, uniform(shape, bound)},
            {layer + ".bias", "bias", uniform({shape[0]}, bound)}};
  }

 private:
  // In [-bound, bound), drawn here and not by libtorch, whose rounding depends on the processor.
  torch::Tensor uniform(const std::vector<std::int64_t>& shape, float bound) {
    torch::Tensor tensor = torch::empty(shape, torch::kFloat32);
    CounterRandom random(seed_, kWeightDomain, stream_++);
    const auto elems = static_cast<std::size_t>(tensor.numel());
    float* values = tensor.data_ptr<float>();
    for (std::size_t i = 0; i < elems; ++i) values[i] = (2 * random.uniform() - 1) * bound;
    return tensor.requires_grad_();
  }

  std::uint64_t seed_;
  std::uint64_t stream_ = 0;
};

torch::Tensor dense(const torch::Tensor& x, c10::ArrayRef<Parameter> parameters) {
  return torch::linear(x, parameters[0].value, parameters[1].value);
}

torch::Tensor dense_relu(const torch::Tensor& x, c10::ArrayRef<Parameter> parameters) {
  return torch::relu(dense(x, parameters));
}

torch::Tensor conv_pool(const torch::Tensor& x, c10::ArrayRef<Parameter> parameters) {
  return torch::max_pool2d(torch::conv2d(x, parameters[0].value, parameters[1].value), 2);
}

torch::Tensor flatten(const torch::Tensor& x, c10::ArrayRef<Parameter> /*none*/) {
  return x.flatten(1);
}

// The network of Oland and Raj's experiments (section 3), with ReLU in place of their tanh.
class Mlp : public Model {
 public:
  explicit Mlp(std::uint64_t seed) : Model("mlp") {
    ParameterMaker make(seed);
    add_layer({}, flatten);
    add_layer(make.pair("fc1", "dense", {392, kInputPixels}), dense_relu);
    add_layer(make.pair("fc2", "dense", {50, 392}), dense_relu);
    add_layer(make.pair("fc3", "dense", {kClasses, 50}), dense);
  }
};

// Caffe's variant: no activation after the convolutions, ReLU after the first dense layer.
class LeNet : public Model {
 public:
  explicit LeNet(std::uint64_t seed) : Model("lenet") {
    ParameterMaker make(seed);
    add_layer(make.pair("conv1", "conv", {20, 1, 5, 5}), conv_pool);
    add_layer(make.pair("conv2", "conv", {50, 20, 5, 5}), conv_pool);
    add_layer({}, flatten);
    add_layer(make.pair("fc1", "dense", {500, 50 * 4 * 4}), dense_relu);
    add_layer(make.pair("fc2", "dense", {kClasses, 500}), dense);
  }
};

void check_input(const torch::Tensor& x) {
  const bool fits = x.defined() && x.dim() >= 2 && x.size(0) > 0 &&
                    x.scalar_type() == torch::kFloat32 && x.numel() == x.size(0) * kInputPixels;
  if (fits) return;
  std::ostringstream shape;
  if (x.defined()) shape << x.scalar_type() << ' ' << x.sizes();
  throw Error(ErrorCode::kInvalidArgument,
              "a batch of shape '" + shape.str() +
                  "' does not fit the model; give floats of shape [batch, 1, 28, 28]");
}

}  // namespace

std::vector<torch::Tensor> Model::tensors() const {
  std::vector<torch::Tensor> values;
  values.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) values.push_back(parameter.value);
  return values;
}

std::size_t Model::elems() const noexcept {
  std::size_t sum = 0;
  for (const Parameter& parameter : parameters_) {
    sum += static_cast<std::size_t>(parameter.value.numel());
  }
  return sum;
}

torch::Tensor Model::forward(const torch::Tensor& x, const BeforeLayer& before_layer) const {
  check_input(x);
  const c10::ArrayRef<Parameter> all(parameters_);
  torch::Tensor activations = x.reshape({x.size(0), 1, kInputSide, kInputSide});
  for (const Layer& layer : layers_) {
    if (before_layer && layer.param_count > 0) before_layer(layer.first_param, layer.param_count);
    activations = layer.compute(activations, all.slice(layer.first_param, layer.param_count));
  }
  return activations;
}

void Model::add_layer(std::vector<Parameter> parameters, Compute compute) {
  layers_.push_back({parameters_.size(), parameters.size(), std::move(compute)});
  std::move(parameters.begin(), parameters.end(), std::back_inserter(parameters_));
}

std::unique_ptr<Model> make_model(const std::string& name, std::uint64_t seed) {
  if (name == "mlp") return std::make_unique<Mlp>(seed);
  if (name == "lenet") return std::make_unique<LeNet>(seed);
  std::string names;
  for (const std::string& known : model_names()) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kInvalidArgument,
              "there is no model '" + name + "'; choose one of: " + names);
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"mlp", "lenet"};
  return names;
}

}  // namespace tersewire::trainer
