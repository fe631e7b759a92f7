#include "trainer/models/layers.h"

#include <utility>

namespace tersewire::trainer {
namespace {

constexpr double kNormMomentum = 0.1;
constexpr double kNormEpsilon = 1e-5;

}  // namespace

torch::Tensor conv(const torch::Tensor& x, LayerInputs& in, std::int64_t stride,
                   std::int64_t padding) {
  return torch::conv2d(x, in.next_parameter(), {}, stride, padding);
}

torch::Tensor biased_conv(const torch::Tensor& x, LayerInputs& in, std::int64_t stride,
                          std::int64_t padding) {
  const torch::Tensor& weight = in.next_parameter();
  return torch::conv2d(x, weight, in.next_parameter(), stride, padding);
}

torch::Tensor batch_norm(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor& factor = in.next_parameter();
  const torch::Tensor& summand = in.next_parameter();
  const torch::Tensor& mean = in.next_statistic();
  const torch::Tensor& variance = in.next_statistic();
  return torch::batch_norm(x, factor, summand, mean, variance, in.training(), kNormMomentum,
                           kNormEpsilon, /*cudnn_enabled=*/false);
}

torch::Tensor conv_norm_relu(const torch::Tensor& x, LayerInputs& in, std::int64_t stride,
                             std::int64_t padding) {
  return batch_norm(conv(x, in, stride, padding), in).relu_();
}

torch::Tensor dense(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor& weight = in.next_parameter();
  return torch::linear(x, weight, in.next_parameter());
}

torch::Tensor dense_relu(const torch::Tensor& x, LayerInputs& in) {
  return torch::relu(dense(x, in));
}

torch::Tensor mean_dense(const torch::Tensor& x, LayerInputs& in) {
  return dense(x.mean({2, 3}), in);
}

torch::Tensor flatten(const torch::Tensor& x, LayerInputs& /*none*/) { return x.flatten(1); }

void add_dense(ModelMaker& make, const std::string& name, std::int64_t in, std::int64_t out,
               Compute compute) {
  make.weight_and_bias(name, "dense", {out, in});
  make.layer(std::move(compute));
}

void add_conv(ModelMaker& make, const std::string& name, std::int64_t in, std::int64_t out,
              std::int64_t side, Compute compute) {
  make.weight_and_bias(name, "conv", {out, in, side, side});
  make.layer(std::move(compute));
}

}  // namespace tersewire::trainer
