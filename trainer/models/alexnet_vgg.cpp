// The large networks of the papers' ImageNet experiments, here for their size and timing.
#include <array>
#include <vector>

#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

// The dense layers that both end with.
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

}  // namespace

// INCEPTIONN's AlexNet (section VII-A), dropout before the first and the second dense layer. Of the
// variants published its 233 MB are those of Krizhevsky 2014 ("One weird trick"): without groups,
// and here, as is usual, without local normalization. TernGrad normalizes its convolutions by
// batches instead, AdaComp's takes 288 MB.
void build_alexnet(ModelMaker& make) {
  add_conv(make, "conv1", 3, 64, 11, conv_relu(4, 2, 3));
  add_conv(make, "conv2", 64, 192, 5, conv_relu(1, 2, 3));
  add_conv(make, "conv3", 192, 384, 3, conv_relu(1, 1, 0));
  add_conv(make, "conv4", 384, 256, 3, conv_relu(1, 1, 0));
  add_conv(make, "conv5", 256, 256, 3, conv_relu(1, 1, 3));
  add_classifier(make, 256 * 6 * 6);
}

// INCEPTIONN's VGG-16: configuration D of Simonyan and Zisserman, table 1. Its authors draw
// weights from a normal distribution, or by Glorot and Bengio's rule (section 3.1): here the
// latter.
void build_vgg16(ModelMaker& make) {
  static const std::array<std::vector<std::int64_t>, 5> stages = {
      {{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}}};
  make.draw(ModelMaker::Weights::kGlorot);
  std::int64_t in = 3;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (std::size_t i = 0; i < stages[stage].size(); ++i) {
      const bool last = i + 1 == stages[stage].size();
      const std::string name = "conv" + std::to_string(stage + 1) + "_" + std::to_string(i + 1);
      add_conv(make, name, in, stages[stage][i], 3, conv_relu(1, 1, last ? 2 : 0));
      in = stages[stage][i];
    }
  }
  add_classifier(make, 512 * 7 * 7);
}

}  // namespace tersewire::trainer
