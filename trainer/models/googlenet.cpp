// GoogLeNet (Szegedy et al. 2014, "Going deeper with convolutions", table 1) as TernGrad trains it
// (section 4.2): batch normalization on the convolutions, and no auxiliary classifiers. That
// normalization comes before ReLU, that convolutions then have no bias, and He et al.'s weights are
// guesses, and so is that the third branch has the 5 x 5 of Szegedy et al., where the usual
// implementation of Inception v1 in TensorFlow has 3 x 3. Without local normalization, in whose
// place batch normalization came. TernGrad's dropout is 0.2 with fp32 (table 3), where Szegedy et
// al. have 0.4, and 0.08 with ternary gradients.
#include "trainer/models/families.h"
#include "trainer/models/inception_blocks.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

// Halves the sides of even images: what hangs over the edge counts.
torch::Tensor halved(const torch::Tensor& x) {
  return torch::max_pool2d(x, 3, 2, /*padding=*/0, /*dilation=*/1, /*ceil_mode=*/true);
}

torch::Tensor inception(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor ones = conv_norm_relu(x, in);
  const torch::Tensor threes = conv_norm_relu(conv_norm_relu(x, in), in, 1, 1);
  const torch::Tensor fives = conv_norm_relu(conv_norm_relu(x, in), in, 1, 2);
  const torch::Tensor pooled = conv_norm_relu(torch::max_pool2d(x, 3, 1, 1), in);
  return torch::cat({ones, threes, fives, pooled}, 1);
}

torch::Tensor mean_of_channels(const torch::Tensor& x, LayerInputs& /*none*/) {
  return x.mean({2, 3});
}

void conv_and_norm(ModelMaker& make, const std::string& name, std::int64_t in, std::int64_t out,
                   std::int64_t side) {
  make.weight(name, "conv", {out, in, side, side});
  make.norm(name + "_bn", out);
}

void add_inception(ModelMaker& make, const InceptionBlock& block) {
  const std::string name = std::string("inception_") + block.name;
  conv_and_norm(make, name + ".1x1", block.in, block.ones, 1);
  conv_and_norm(make, name + ".3x3_reduce", block.in, block.reduced3, 1);
  conv_and_norm(make, name + ".3x3", block.reduced3, block.threes, 3);
  conv_and_norm(make, name + ".5x5_reduce", block.in, block.reduced5, 1);
  conv_and_norm(make, name + ".5x5", block.reduced5, block.fives, 5);
  conv_and_norm(make, name + ".pool_proj", block.in, block.pooled, 1);
  const bool after_pool = block.name[1] == 'a';
  make.layer([after_pool](const torch::Tensor& x, LayerInputs& in) {
    return inception(after_pool ? halved(x) : x, in);
  });
}

}  // namespace

void build_googlenet(ModelMaker& make) {
  make.draw(ModelMaker::Weights::kHe);
  conv_and_norm(make, "conv1", 3, 64, 7);
  make.layer(
      [](const torch::Tensor& x, LayerInputs& in) { return halved(conv_norm_relu(x, in, 2, 3)); });
  conv_and_norm(make, "conv2_reduce", 64, 64, 1);
  make.layer([](const torch::Tensor& x, LayerInputs& in) { return conv_norm_relu(x, in); });
  conv_and_norm(make, "conv2", 64, 192, 3);
  make.layer([](const torch::Tensor& x, LayerInputs& in) { return conv_norm_relu(x, in, 1, 1); });
  for (const InceptionBlock& block : kInceptionBlocks) add_inception(make, block);
  make.layer(mean_of_channels);
  make.dropout(0.2);
  make.draw(ModelMaker::Weights::kFanIn);
  add_dense(make, "fc", 1024, make.classes(), dense);
}

}  // namespace tersewire::trainer
