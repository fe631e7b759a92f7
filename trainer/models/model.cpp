#include "trainer/models/model.h"

#include <functional>
#include <numeric>
#include <sstream>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kDropoutDomain = 0x64726F706F7574;  // "dropout"

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

torch::Tensor Model::forward(const torch::Tensor& x, const Pass& pass) const {
  const c10::ArrayRef<Parameter> parameters(parameters_);
  const c10::ArrayRef<Parameter> statistics(statistics_);
  CounterRandom random(seed_, kDropoutDomain, pass.draws);
  torch::Tensor activations = checked(x);
  for (const Layer& layer : layers_) {
    if (pass.before_layer && layer.param_count > 0) {
      pass.before_layer(layer.first_param, layer.param_count);
    }
    LayerInputs in(parameters.slice(layer.first_param, layer.param_count),
                   statistics.slice(layer.first_statistic, layer.statistic_count), pass.training,
                   random);
    activations = layer.compute(activations, in);
  }
  return activations;
}

// The batch in the shape that the first layer takes.
torch::Tensor Model::checked(const torch::Tensor& x) const {
  const auto type = takes_.text ? torch::kInt64 : torch::kFloat32;
  const bool batch = x.defined() && x.dim() >= 2 && x.numel() > 0 && x.scalar_type() == type;
  const bool fits_text = takes_.shape.empty() || (x.defined() && x.size(-1) <= takes_.shape[0]);
  if (batch && takes_.text && x.dim() == 2 && fits_text) return x;
  const std::int64_t a_sample = std::accumulate(takes_.shape.begin(), takes_.shape.end(),
                                                std::int64_t{1}, std::multiplies<>());
  std::vector<std::int64_t> shape = takes_.shape;
  if (batch && !takes_.text && x.numel() == x.size(0) * a_sample) {
    shape.insert(shape.begin(), x.size(0));
    return x.reshape(shape);
  }
  std::ostringstream sentence;
  sentence << "a batch of shape '";
  if (x.defined()) sentence << x.scalar_type() << ' ' << x.sizes();
  sentence << "' does not fit the model; give ";
  if (takes_.text) {
    sentence << "characters by number, int64 of shape [batch, characters]";
    if (!takes_.shape.empty()) sentence << ", at most " << takes_.shape[0] << " characters";
  } else {
    sentence << "floats of shape [batch";
    for (const std::int64_t side : shape) sentence << ", " << side;
    sentence << ']';
  }
  throw Error(ErrorCode::kInvalidArgument, sentence.str());
}

}  // namespace tersewire::trainer
