#include "trainer/models/families.h"

#include <map>

#include "trainer/models/models.h"

namespace tersewire::trainer {

std::unique_ptr<Model> Model::make(const std::string& name, const ModelOptions& options) {
  static const std::map<std::string, void (*)(ModelMaker&)> builders = {
      {"mlp", build_mlp},
      {"small-mlp", build_small_mlp},
      {"hdc", build_hdc},
      {"lenet", build_lenet},
      {"mnist-cnn", build_mnist_cnn},
      {"cifar-cnn", build_cifar_cnn},
      {"cifarnet", build_cifarnet},
      {"resnet20", build_resnet20},
      {"resnet32", build_resnet32},
      {"resnet56", build_resnet56},
      {"resnet110", build_resnet110},
      {"resnet18", build_resnet18},
      {"resnet50", build_resnet50},
      {"googlenet", build_googlenet},
      {"alexnet", build_alexnet},
      {"alexnet-bn", build_alexnet_bn},
      {"vgg-a", build_vgg_a},
      {"vgg16", build_vgg16},
      {"bn50", build_bn50},
      {"lstm", build_lstm},
      {"gpt", build_gpt}};
  ModelMaker maker(model_info(name).takes, options);
  builders.at(name)(maker);
  return maker.take();
}

}  // namespace tersewire::trainer
