// What layers are made of. Each takes its tensors from `in`, in the order that is named.
#pragma once

#include "trainer/models/model_maker.h"

namespace tersewire::trainer {

// A convolution: the weight, and where it has one the bias.
torch::Tensor conv(const torch::Tensor& x, LayerInputs& in, std::int64_t stride = 1,
                   std::int64_t padding = 0);
torch::Tensor biased_conv(const torch::Tensor& x, LayerInputs& in, std::int64_t stride = 1,
                          std::int64_t padding = 0);

// Batch normalization: the factor, the summand; the running mean and variance. libtorch's usual
// constants: a batch counts for a tenth of the running statistics, 1e-5 is added to the variance.
torch::Tensor batch_norm(const torch::Tensor& x, LayerInputs& in);

// A convolution without a bias, batch normalization, ReLU.
torch::Tensor conv_norm_relu(const torch::Tensor& x, LayerInputs& in, std::int64_t stride = 1,
                             std::int64_t padding = 0);

// A dense layer: the weight, the bias.
torch::Tensor dense(const torch::Tensor& x, LayerInputs& in);
torch::Tensor dense_relu(const torch::Tensor& x, LayerInputs& in);
// One of each channel's mean.
torch::Tensor mean_dense(const torch::Tensor& x, LayerInputs& in);

// [samples, ...] to [samples, values].
torch::Tensor flatten(const torch::Tensor& x, LayerInputs& none);

// A layer of its own of ModelMaker's: a dense one with `in` inputs.
void add_dense(ModelMaker& make, const std::string& name, std::int64_t in, std::int64_t out,
               Compute compute);
// One with a convolution of `side` x `side`, with a bias.
void add_conv(ModelMaker& make, const std::string& name, std::int64_t in, std::int64_t out,
              std::int64_t side, Compute compute);

}  // namespace tersewire::trainer
