// ResNet-(6n+2) for CIFAR (He et al. 2015, "Deep residual learning", section 4.2; 3LC section 4.3
// trains ResNet-110): three stages of n blocks, 16, 32 and 64 wide, whose shortcuts have no weights
// (option A). 3LC does not say how its running statistics decay.
#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

constexpr std::int64_t kStages = 3;

// Every second pixel, and zeros in the new channels.
torch::Tensor narrowed(const torch::Tensor& x) {
  const std::int64_t channels = x.size(1);
  const torch::Tensor pixels = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
  return torch::constant_pad_nd(pixels, {0, 0, 0, 0, 0, channels});
}

torch::Tensor block(const torch::Tensor& x, LayerInputs& in, bool narrows) {
  torch::Tensor y = conv_norm_relu(x, in, narrows ? 2 : 1, 1);
  y = batch_norm(conv(y, in, 1, 1), in);
  return y.add_(narrows ? narrowed(x) : x).relu_();
}

void build_resnet(ModelMaker& make, int blocks) {
  make.draw(ModelMaker::Weights::kHe);
  make.weight("conv1", "conv", {16, 3, 3, 3});
  make.norm("bn1", 16);
  make.layer([](const torch::Tensor& x, LayerInputs& in) { return conv_norm_relu(x, in, 1, 1); });
  std::int64_t in = 16;
  for (std::int64_t stage = 1; stage <= kStages; ++stage) {
    const std::int64_t out = std::int64_t{8} << stage;
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(i);
      make.weight(name + ".conv1", "conv", {out, in, 3, 3});
      make.norm(name + ".bn1", out);
      make.weight(name + ".conv2", "conv", {out, out, 3, 3});
      make.norm(name + ".bn2", out);
      const bool narrows = out != in;
      make.layer([narrows](const torch::Tensor& x, LayerInputs& inputs) {
        return block(x, inputs, narrows);
      });
      in = out;
    }
  }
  make.draw(ModelMaker::Weights::kFanIn);
  add_dense(make, "fc", in, make.classes(), mean_dense);
}

}  // namespace

void build_resnet20(ModelMaker& make) { build_resnet(make, 3); }
void build_resnet32(ModelMaker& make) { build_resnet(make, 5); }
void build_resnet56(ModelMaker& make) { build_resnet(make, 9); }
void build_resnet110(ModelMaker& make) { build_resnet(make, 18); }

}  // namespace tersewire::trainer
