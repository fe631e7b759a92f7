// ResNet-18 and -50 (He et al. 2015, table 1), which INCEPTIONN and AdaComp train on ImageNet. A
// stage's first block halves the image with its first convolution, as published; its shortcut is a
// convolution of 1 x 1 (option B).
#include <array>

#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

using Blocks = std::array<int, 4>;

torch::Tensor stem(const torch::Tensor& x, LayerInputs& in) {
  return torch::max_pool2d(conv_norm_relu(x, in, 2, 3), 3, 2, 1);
}

// The shortcut's tensors come after the block's own.
torch::Tensor joined(const torch::Tensor& y, const torch::Tensor& x, LayerInputs& in,
                     std::int64_t stride, bool projects) {
  return y.add_(projects ? batch_norm(conv(x, in, stride), in) : x).relu_();
}

torch::Tensor basic_block(const torch::Tensor& x, LayerInputs& in, std::int64_t stride,
                          bool projects) {
  torch::Tensor y = conv_norm_relu(x, in, stride, 1);
  y = batch_norm(conv(y, in, 1, 1), in);
  return joined(y, x, in, stride, projects);
}

torch::Tensor bottleneck(const torch::Tensor& x, LayerInputs& in, std::int64_t stride,
                         bool projects) {
  torch::Tensor y = conv_norm_relu(x, in, stride);
  y = conv_norm_relu(y, in, 1, 1);
  y = batch_norm(conv(y, in), in);
  return joined(y, x, in, stride, projects);
}

void conv_and_norm(ModelMaker& make, const std::string& block, const std::string& number,
                   std::int64_t in, std::int64_t out, std::int64_t side) {
  make.weight(block + ".conv" + number, "conv", {out, in, side, side});
  make.norm(block + ".bn" + number, out);
}

void shortcut(ModelMaker& make, const std::string& block, std::int64_t in, std::int64_t out) {
  if (in == out) return;
  make.weight(block + ".downsample.0", "conv", {out, in, 1, 1});
  make.norm(block + ".downsample.1", out);
}

// `widening`: how many times wider than its inner layers a block's output is.
void build_resnet(ModelMaker& make, const Blocks& blocks, std::int64_t widening) {
  make.draw(ModelMaker::Weights::kHe);
  make.weight("conv1", "conv", {64, 3, 7, 7});
  make.norm("bn1", 64);
  make.layer(stem);
  std::int64_t in = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::int64_t inner = std::int64_t{64} << stage;
    const std::int64_t out = inner * widening;
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      if (widening == 1) {
        conv_and_norm(make, name, "1", in, inner, 3);
        conv_and_norm(make, name, "2", inner, inner, 3);
      } else {
        conv_and_norm(make, name, "1", in, inner, 1);
        conv_and_norm(make, name, "2", inner, inner, 3);
        conv_and_norm(make, name, "3", inner, out, 1);
      }
      shortcut(make, name, in, out);
      const auto compute = widening == 1 ? basic_block : bottleneck;
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const bool projects = in != out;
      make.layer([=](const torch::Tensor& x, LayerInputs& inputs) {
        return compute(x, inputs, stride, projects);
      });
      in = out;
    }
  }
  make.draw(ModelMaker::Weights::kFanIn);
  add_dense(make, "fc", in, make.classes(), mean_dense);
}

}  // namespace

void build_resnet18(ModelMaker& make) { build_resnet(make, {2, 2, 2, 2}, 1); }
void build_resnet50(ModelMaker& make) { build_resnet(make, {3, 4, 6, 3}, 4); }

}  // namespace tersewire::trainer
