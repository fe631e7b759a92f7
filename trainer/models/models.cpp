#include "trainer/models/models.h"

#include "tersewire/error.h"

namespace tersewire::trainer {

const std::vector<ModelInfo>& models() {
  const SampleKind mnist{{1, 28, 28}, 10, false};
  const SampleKind cifar{{3, 32, 32}, 10, false};
  const SampleKind imagenet{{3, 224, 224}, 1000, false};
  static const std::vector<ModelInfo> infos = {
      {"mlp", mnist, "784-392-50-10 with tanh (Oland & Raj)"},
      {"small-mlp", mnist, "784-16-16-10 with tanh, for tests and first tries"},
      {"hdc", mnist, "784-500-500-500-500-10 (INCEPTIONN)"},
      {"lenet", mnist, "Caffe's LeNet (TernGrad)"},
      {"mnist-cnn", mnist, "2 convolutions and 2 dense layers, ReLU (AdaComp)"},
      {"cifar-cnn", cifar, "3 convolutions and a dense layer (AdaComp)"},
      {"cifarnet", {{3, 24, 24}, 10, false}, "2 convolutions and 3 dense layers (TernGrad)"},
      {"resnet20", cifar, "ResNet for CIFAR, 20 layers"},
      {"resnet32", cifar, "ResNet for CIFAR, 32 layers"},
      {"resnet56", cifar, "ResNet for CIFAR, 56 layers"},
      {"resnet110", cifar, "ResNet for CIFAR, 110 layers (3LC)"},
      {"resnet18", imagenet, "ResNet for ImageNet, 18 layers (AdaComp)"},
      {"resnet50", imagenet, "ResNet for ImageNet, 50 layers (INCEPTIONN, AdaComp)"},
      {"googlenet", imagenet, "Inception v1 with batch normalization (TernGrad)"},
      {"alexnet", imagenet, "AlexNet without groups (INCEPTIONN)"},
      {"alexnet-bn", imagenet, "AlexNet with batch normalization (TernGrad)"},
      {"vgg-a", imagenet, "VGG with 11 layers (TernGrad)"},
      {"vgg16", imagenet, "VGG with 16 layers (INCEPTIONN)"},
      {"bn50", {{440}, 5999, false}, "440, five of 1024, 5999: for speech (AdaComp)"},
      {"lstm",
       {{}, 65, true},
       "two layers of 512, over characters (AdaComp)",
       {{"optimizer", "adam"}, {"lr", "0.002"}, {"weight-decay", "0"}}},
      {"gpt",
       {{64}, 65, true},
       "3 blocks, 128 wide, 4 heads, over 64 characters",
       {{"optimizer", "adamw"}, {"lr", "0.003"}, {"weight-decay", "0.01"}, {"clip", "1"}},
       10}};
  return infos;
}

const ModelInfo& model_info(const std::string& name) {
  std::string names;
  for (const ModelInfo& info : models()) {
    if (info.name == name) return info;
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown model '" + name + "'; choose one of: " + names);
}

}  // namespace tersewire::trainer
