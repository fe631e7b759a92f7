#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

torch::Tensor conv_pool(const torch::Tensor& x, LayerInputs& in) {
  return torch::max_pool2d(biased_conv(x, in), 2);
}

torch::Tensor conv_relu_pool(const torch::Tensor& x, LayerInputs& in) {
  return torch::relu(conv_pool(x, in));
}

// Halves the sides of even images. Caffe's pools count what hangs over the edge, as libtorch's do
// with ceil_mode.
torch::Tensor max_pool3(const torch::Tensor& x) {
  return torch::max_pool2d(x, 3, 2, /*padding=*/0, /*dilation=*/1, /*ceil_mode=*/true);
}

torch::Tensor mean_pool3(const torch::Tensor& x) {
  return torch::avg_pool2d(x, 3, 2, /*padding=*/0, /*ceil_mode=*/true);
}

torch::Tensor conv_max_relu(const torch::Tensor& x, LayerInputs& in) {
  return torch::relu(max_pool3(biased_conv(x, in, 1, 2)));
}

torch::Tensor conv_relu_mean(const torch::Tensor& x, LayerInputs& in) {
  return mean_pool3(torch::relu(biased_conv(x, in, 1, 2)));
}

// Local response normalization over 9 neighbouring channels, with the constants of TensorFlow's
// tutorial: 0.001 / 9 times their squares' sum.
torch::Tensor local_norm(const torch::Tensor& x) {
  const torch::Tensor squares = torch::constant_pad_nd((x * x).unsqueeze(1), {0, 0, 0, 0, 4, 4});
  const torch::Tensor mean = torch::avg_pool3d(squares, {9, 1, 1}, 1).squeeze(1);
  return x * (1 + 0.001 * mean).pow(-0.75);
}

torch::Tensor conv_pool_norm(const torch::Tensor& x, LayerInputs& in) {
  return local_norm(max_pool3(torch::relu(biased_conv(x, in, 1, 2))));
}

torch::Tensor conv_norm_pool(const torch::Tensor& x, LayerInputs& in) {
  return max_pool3(local_norm(torch::relu(biased_conv(x, in, 1, 2))));
}

void lenet_layers(ModelMaker& make, const Compute& convolution) {
  add_conv(make, "conv1", 1, 20, 5, convolution);
  add_conv(make, "conv2", 20, 50, 5, convolution);
  make.layer(flatten);
  add_dense(make, "fc1", 50 * 4 * 4, 500, dense_relu);
  make.dropout(0);
  add_dense(make, "fc2", 500, make.classes(), dense);
}

}  // namespace

// TernGrad's LeNet (section 4.1), taken to be Caffe's: no activation after the convolutions, ReLU
// after the first dense layer, no dropout unless asked for.
void build_lenet(ModelMaker& make) { lenet_layers(make, conv_pool); }

// AdaComp's MNIST-CNN: two convolutions of 5 x 5 with ReLU, two dense layers, 1.7 MB. The widths
// are a guess that makes that size: LeNet's.
void build_mnist_cnn(ModelMaker& make) { lenet_layers(make, conv_relu_pool); }

// AdaComp's CIFAR-CNN: three convolutions of 5 x 5 with ReLU, a dense layer, 0.3 MB. Widths and
// pools are a guess that comes to 0.34 MiB: Caffe's for CIFAR-10, without its local normalization.
void build_cifar_cnn(ModelMaker& make) {
  add_conv(make, "conv1", 3, 32, 5, conv_max_relu);
  add_conv(make, "conv2", 32, 32, 5, conv_relu_mean);
  add_conv(make, "conv3", 32, 64, 5, conv_relu_mean);
  make.layer(flatten);
  make.dropout(0);
  add_dense(make, "fc", 64 * 4 * 4, make.classes(), dense);
}

// TernGrad's CifarNet (section 4.1) takes crops of 24 x 24. The paper gives no sizes: these are
// those of the network that TensorFlow's tutorial trains on such crops, with the dropout that
// TensorFlow's "cifarnet" adds after the first dense layer.
void build_cifarnet(ModelMaker& make) {
  add_conv(make, "conv1", 3, 64, 5, conv_pool_norm);
  add_conv(make, "conv2", 64, 64, 5, conv_norm_pool);
  make.layer(flatten);
  add_dense(make, "fc1", 64 * 6 * 6, 384, dense_relu);
  make.dropout(0.5);
  add_dense(make, "fc2", 384, 192, dense_relu);
  add_dense(make, "fc3", 192, make.classes(), dense);
}

}  // namespace tersewire::trainer
