#include "trainer/models/models.h"

#include "tersewire/error.h"
#include "trainer/models/families.h"

namespace tersewire::trainer {
namespace {

struct Entry {
  ModelInfo info;
  void (*build)(ModelMaker& make);
};

const std::vector<Entry>& table() {
  const SampleKind mnist{{1, 28, 28}, 10, false};
  const SampleKind cifar{{3, 32, 32}, 10, false};
  const SampleKind imagenet{{3, 224, 224}, 1000, false};
  static const std::vector<Entry> entries = {
      {{"mlp", mnist, "784-392-50-10 with tanh (Oland & Raj)"}, build_mlp},
      {{"hdc", mnist, "784-500-500-500-500-10 (INCEPTIONN)"}, build_hdc},
      {{"lenet", mnist, "Caffe's LeNet (TernGrad)"}, build_lenet},
      {{"mnist-cnn", mnist, "2 convolutions and 2 dense layers, ReLU (AdaComp)"}, build_mnist_cnn},
      {{"cifar-cnn", cifar, "3 convolutions and a dense layer (AdaComp)"}, build_cifar_cnn},
      {{"cifarnet", {{3, 24, 24}, 10, false}, "2 convolutions and 3 dense layers (TernGrad)"},
       build_cifarnet},
      {{"resnet20", cifar, "ResNet for CIFAR, 20 layers"}, build_resnet20},
      {{"resnet32", cifar, "ResNet for CIFAR, 32 layers"}, build_resnet32},
      {{"resnet56", cifar, "ResNet for CIFAR, 56 layers"}, build_resnet56},
      {{"resnet110", cifar, "ResNet for CIFAR, 110 layers (3LC)"}, build_resnet110},
      {{"resnet18", imagenet, "ResNet for ImageNet, 18 layers (AdaComp)"}, build_resnet18},
      {{"resnet50", imagenet, "ResNet for ImageNet, 50 layers (INCEPTIONN, AdaComp)"},
       build_resnet50},
      {{"googlenet", imagenet, "Inception v1 with batch normalization (TernGrad)"},
       build_googlenet},
      {{"alexnet", imagenet, "AlexNet without groups (INCEPTIONN)"}, build_alexnet},
      {{"alexnet-bn", imagenet, "AlexNet with batch normalization (TernGrad)"}, build_alexnet_bn},
      {{"vgg-a", imagenet, "VGG with 11 layers (TernGrad)"}, build_vgg_a},
      {{"vgg16", imagenet, "VGG with 16 layers (INCEPTIONN)"}, build_vgg16},
      {{"bn50", {{440}, 5999, false}, "440, five of 1024, 5999: for speech (AdaComp)"}, build_bn50},
      {{"lstm", {{}, 65, true}, "two layers of 512, over characters (AdaComp)"}, build_lstm},
      {{"gpt", {{64}, 65, true}, "3 blocks, 128 wide, 4 heads, over 64 characters"}, build_gpt}};
  return entries;
}

}  // namespace

const std::vector<ModelInfo>& models() {
  static const std::vector<ModelInfo> infos = [] {
    std::vector<ModelInfo> all;
    for (const Entry& entry : table()) all.push_back(entry.info);
    return all;
  }();
  return infos;
}

std::string model_names() {
  std::string names;
  for (const ModelInfo& info : models()) names += (names.empty() ? "" : ", ") + info.name;
  return names;
}

std::unique_ptr<Model> Model::make(const std::string& name, const ModelOptions& options) {
  for (const Entry& entry : table()) {
    if (entry.info.name != name) continue;
    ModelMaker maker(entry.info.takes, options);
    entry.build(maker);
    return maker.take();
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown model '" + name + "'; choose one of: " + model_names());
}

}  // namespace tersewire::trainer
