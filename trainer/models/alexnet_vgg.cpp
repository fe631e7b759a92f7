// The large networks of the papers' ImageNet experiments, here for their size and timing.
#include <algorithm>
#include <array>

#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

// The dense layers that all end with.
void add_classifier(ModelMaker& make, std::int64_t in) {
  make.layer(flatten);
  make.dropout(0.5);
  add_dense(make, "fc6", in, 4096, dense_relu);
  make.dropout(0.5);
  add_dense(make, "fc7", 4096, 4096, dense_relu);
  add_dense(make, "fc8", 4096, make.classes(), dense);
}

// A convolution with ReLU, and a pool of `pool` x `pool` at every second pixel where it is not 0.
Compute conv_relu(std::int64_t stride, std::int64_t padding, std::int64_t pool) {
  return [=](const torch::Tensor& x, LayerInputs& in) {
    const torch::Tensor y = torch::relu(biased_conv(x, in, stride, padding));
    return pool > 0 ? torch::max_pool2d(y, pool, 2) : y;
  };
}

// The same without a bias, normalized by batches before ReLU.
Compute normalized_conv(std::int64_t stride, std::int64_t padding, std::int64_t pool) {
  return [=](const torch::Tensor& x, LayerInputs& in) {
    const torch::Tensor y = conv_norm_relu(x, in, stride, padding);
    return pool > 0 ? torch::max_pool2d(y, pool, 2) : y;
  };
}

void alexnet_layers(ModelMaker& make, bool normalized) {
  const auto add = [&](const std::string& number, std::int64_t in, std::int64_t out,
                       std::int64_t side, std::int64_t stride, std::int64_t padding,
                       std::int64_t pool) {
    if (!normalized) {
      add_conv(make, "conv" + number, in, out, side, conv_relu(stride, padding, pool));
      return;
    }
    make.weight("conv" + number, "conv", {out, in, side, side});
    make.norm("bn" + number, out);
    make.layer(normalized_conv(stride, padding, pool));
  };
  add("1", 3, 64, 11, 4, 2, 3);
  add("2", 64, 192, 5, 1, 2, 3);
  add("3", 192, 384, 3, 1, 1, 0);
  add("4", 384, 256, 3, 1, 1, 0);
  add("5", 256, 256, 3, 1, 1, 3);
  add_classifier(make, 256 * 6 * 6);
}

// Five stages of so many convolutions, with a pool after each.
void vgg_layers(ModelMaker& make, const std::array<int, 5>& convs) {
  make.draw(ModelMaker::Weights::kGlorot);
  std::int64_t in = 3;
  for (std::size_t stage = 0; stage < convs.size(); ++stage) {
    const std::int64_t out = std::min<std::int64_t>(std::int64_t{64} << stage, 512);
    for (int i = 1; i <= convs[stage]; ++i) {
      const std::string name = "conv" + std::to_string(stage + 1) + "_" + std::to_string(i);
      add_conv(make, name, in, out, 3, conv_relu(1, 1, i == convs[stage] ? 2 : 0));
      in = out;
    }
  }
  add_classifier(make, 512 * 7 * 7);
}

}  // namespace

// INCEPTIONN's AlexNet (section VII-A), dropout before the first and the second dense layer. Of the
// variants published its 233 MB are those of Krizhevsky 2014 ("One weird trick"): without groups,
// and here, as is usual, without local normalization. AdaComp's takes 288 MB.
void build_alexnet(ModelMaker& make) { alexnet_layers(make, /*normalized=*/false); }

// TernGrad's AlexNet (section 4.2): batch normalization on the convolutions. Its last layer is 6.7
// % of the values, as here. The paper does not say more: that the rest is as above, normalization
// comes before ReLU, and convolutions then have no bias, are guesses. Its dropout is 0.5 with fp32
// and 0.2 with ternary gradients.
void build_alexnet_bn(ModelMaker& make) { alexnet_layers(make, /*normalized=*/true); }

// INCEPTIONN's VGG-16: configuration D of Simonyan and Zisserman, table 1. Its authors draw
// weights from a normal distribution, or by Glorot and Bengio's rule (section 3.1): here the
// latter.
void build_vgg16(ModelMaker& make) { vgg_layers(make, {2, 2, 3, 3, 3}); }

// TernGrad's VggNet-A (section 5): configuration A. It was not trained there, only calculated with,
// so that its convolutions are taken to be as published, without batch normalization.
void build_vgg_a(ModelMaker& make) { vgg_layers(make, {1, 1, 2, 2, 2}); }

}  // namespace tersewire::trainer
