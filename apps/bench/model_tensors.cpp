#include "apps/bench/model_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tersewire/error.h"
#include "trainer/models/inception_blocks.h"

namespace tersewire::bench {
namespace {

using Size = std::uint64_t;

// Lists a network's tensors, layer by layer.
class Layers {
 public:
  void conv(const std::string& name, Size in, Size out, Size width) {
    add(name + ".weight", {out, in, width, width}, TensorKind::kConv);
  }
  void biased_conv(const std::string& name, Size in, Size out, Size width) {
    conv(name, in, out, width);
    add(name + ".bias", {out}, TensorKind::kBias);
  }
  void norm(const std::string& name, Size channels) {
    add(name + ".weight", {channels}, TensorKind::kNorm);
    add(name + ".bias", {channels}, TensorKind::kNorm);
  }
  void normalized_conv(const std::string& name, const std::string& norm_name, Size in, Size out,
                       Size width) {
    conv(name, in, out, width);
    norm(norm_name, out);
  }
  void dense(const std::string& name, Size in, Size out) {
    add(name + ".weight", {out, in}, TensorKind::kDense);
    add(name + ".bias", {out}, TensorKind::kBias);
  }
  void lstm(const std::string& name, Size in, Size hidden) {
    add(name + ".weight_ih", {4 * hidden, in}, TensorKind::kRecurrent);
    add(name + ".weight_hh", {4 * hidden, hidden}, TensorKind::kRecurrent);
    add(name + ".bias_ih", {4 * hidden}, TensorKind::kBias);
    add(name + ".bias_hh", {4 * hidden}, TensorKind::kBias);
  }
  std::vector<TensorInfo> take() { return std::move(tensors_); }

 private:
  void add(std::string name, std::vector<Size> shape, TensorKind kind) {
    tensors_.push_back({.name = std::move(name), .shape = std::move(shape), .kind = kind});
  }

  std::vector<TensorInfo> tensors_;
};

// For CIFAR-10, of 6 * kBlocks + 2 layers: so many blocks a stage, of two layers each.
template <int kBlocks>
void cifar_resnet(Layers& net) {
  net.conv("conv1", 3, 16, 3);
  net.norm("bn1", 16);
  Size in = 16;
  for (int stage = 1; stage <= 3; ++stage) {
    const Size out = Size{8} << stage;
    for (int block = 0; block < kBlocks; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage, block);
      net.conv(name + ".conv1", in, out, 3);
      net.norm(name + ".bn1", out);
      net.conv(name + ".conv2", out, out, 3);
      net.norm(name + ".bn2", out);
      in = out;
    }
  }
  net.dense("fc", 64, 10);
}

void resnet50(Layers& net) {
  net.conv("conv1", 3, 64, 7);
  net.norm("bn1", 64);
  Size in = 64;
  const std::array<int, 4> blocks = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const Size inner = Size{64} << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      net.conv(name + ".conv1", in, inner, 1);
      net.norm(name + ".bn1", inner);
      net.conv(name + ".conv2", inner, inner, 3);
      net.norm(name + ".bn2", inner);
      net.conv(name + ".conv3", inner, 4 * inner, 1);
      net.norm(name + ".bn3", 4 * inner);
      if (block == 0) {
        net.conv(name + ".downsample.0", in, 4 * inner, 1);
        net.norm(name + ".downsample.1", 4 * inner);
      }
      in = 4 * inner;
    }
  }
  net.dense("fc", 2048, 1000);
}

void classifier(Layers& net, Size in) {
  net.dense("fc6", in, 4096);
  net.dense("fc7", 4096, 4096);
  net.dense("fc8", 4096, 1000);
}

void alexnet(Layers& net) {
  net.biased_conv("conv1", 3, 64, 11);
  net.biased_conv("conv2", 64, 192, 5);
  net.biased_conv("conv3", 192, 384, 3);
  net.biased_conv("conv4", 384, 256, 3);
  net.biased_conv("conv5", 256, 256, 3);
  classifier(net, Size{256} * 6 * 6);
}

void alexnet_bn(Layers& net) {
  net.normalized_conv("conv1", "bn1", 3, 64, 11);
  net.normalized_conv("conv2", "bn2", 64, 192, 5);
  net.normalized_conv("conv3", "bn3", 192, 384, 3);
  net.normalized_conv("conv4", "bn4", 384, 256, 3);
  net.normalized_conv("conv5", "bn5", 256, 256, 3);
  classifier(net, Size{256} * 6 * 6);
}

// So many convolutions a stage.
template <int... kConvs>
void vgg(Layers& net) {
  Size in = 3;
  int stage = 0;
  for (const int convs : {kConvs...}) {
    const Size out = std::min(Size{64} << stage++, Size{512});
    for (int i = 1; i <= convs; ++i) {
      net.biased_conv(fmt::format("conv{}_{}", stage, i), in, out, 3);
      in = out;
    }
  }
  classifier(net, Size{512} * 7 * 7);
}

void inception(Layers& net, const trainer::InceptionBlock& block) {
  const auto add = [&](const char* branch, std::int64_t in, std::int64_t out, Size width) {
    const std::string name = fmt::format("inception_{}.{}", block.name, branch);
    net.normalized_conv(name, name + "_bn", static_cast<Size>(in), static_cast<Size>(out), width);
  };
  add("1x1", block.in, block.ones, 1);
  add("3x3_reduce", block.in, block.reduced3, 1);
  add("3x3", block.reduced3, block.threes, 3);
  add("5x5_reduce", block.in, block.reduced5, 1);
  add("5x5", block.reduced5, block.fives, 5);
  add("pool_proj", block.in, block.pooled, 1);
}

void googlenet(Layers& net) {
  net.normalized_conv("conv1", "conv1_bn", 3, 64, 7);
  net.normalized_conv("conv2_reduce", "conv2_reduce_bn", 64, 64, 1);
  net.normalized_conv("conv2", "conv2_bn", 64, 192, 3);
  for (const trainer::InceptionBlock& block : trainer::kInceptionBlocks) inception(net, block);
  net.dense("fc", 1024, 1000);
}

void hdc(Layers& net) {
  net.dense("fc1", Size{28} * 28, 500);
  for (const char* name : {"fc2", "fc3", "fc4"}) net.dense(name, 500, 500);
  net.dense("fc5", 500, 10);
}

void lenet(Layers& net) {
  net.biased_conv("conv1", 1, 20, 5);
  net.biased_conv("conv2", 20, 50, 5);
  net.dense("fc1", Size{50} * 4 * 4, 500);
  net.dense("fc2", 500, 10);
}

void mlp(Layers& net) {
  net.dense("fc1", Size{28} * 28, 392);
  net.dense("fc2", 392, 50);
  net.dense("fc3", 50, 10);
}

void lstm(Layers& net) {
  net.lstm("lstm1", 65, 512);
  net.lstm("lstm2", 512, 512);
  net.dense("fc", 512, 65);
}

struct Model {
  const char* name;
  void (*list)(Layers& net);
};

constexpr std::array kModels = {Model{"resnet110", cifar_resnet<18>},
                                Model{"resnet50", resnet50},
                                Model{"alexnet", alexnet},
                                Model{"alexnet-bn", alexnet_bn},
                                Model{"vgg16", vgg<2, 2, 3, 3, 3>},
                                Model{"vgg-a", vgg<1, 1, 2, 2, 2>},
                                Model{"googlenet", googlenet},
                                Model{"hdc", hdc},
                                Model{"lenet", lenet},
                                Model{"lstm", lstm},
                                Model{"resnet56", cifar_resnet<9>},
                                Model{"resnet32", cifar_resnet<5>},
                                Model{"resnet20", cifar_resnet<3>},
                                Model{"mlp", mlp}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

std::vector<TensorInfo> model_tensors(std::string_view model, double scale) {
  const auto* found = std::ranges::find(kModels, model, &Model::name);
  if (found == kModels.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("unknown model '{}'; use {}", model, fmt::join(model_names(), ", ")));
  }
  if (!(scale > 0 && scale <= 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a scale of {} is not above 0 and at most 1; use one that is", scale));
  }
  Layers net;
  found->list(net);
  auto tensors = net.take();
  for (TensorInfo& tensor : tensors) {
    tensor.shape[0] = static_cast<Size>(std::ceil(static_cast<double>(tensor.shape[0]) * scale));
  }
  return tensors;
}

}  // namespace tersewire::bench
