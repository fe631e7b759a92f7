// The tensors of networks that papers on compressed training measure with, for measuring exchanges
// without a framework.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tersewire/tensor.h"

namespace tersewire::bench {

// What model_tensors() takes.
std::vector<std::string> model_names();

// The trained tensors of a network, those of `tersewire train --model`, in the order in which its
// forward pass uses them. Each has `scale` times as many values, rounded up by its first dimension.
// Throws kInvalidArgument for an unknown model, naming the known ones, and for a
// scale not above 0 and at most 1.
//
//   resnet110  for CIFAR-10, shortcuts without weights (He et al., section 4.2)       1.7 M values
//   resnet50   for ImageNet                                                          25.6 M
//   alexnet    for ImageNet, without groups: 233 MiB, as INCEPTIONN's table has it   61.1 M
//   vgg16      for ImageNet                                                         138.4 M
//   vgg-a      its smallest, 11 layers: TernGrad's VggNet-A                         132.9 M
//   alexnet-bn  with batch normalization, TernGrad's                                61.1 M
//   googlenet  Inception v1 with batch normalization, TernGrad's                      7.0 M
//   hdc        INCEPTIONN's digit classifier, 784-500-500-500-500-10                  1.1 M
//   lenet      that of `tersewire train`                                              0.4 M
//   lstm       two layers of 512 over 65 characters, AdaComp's                        3.3 M
//   resnet56, resnet32, resnet20  as resnet110, of fewer layers              0.9, 0.5, 0.3 M
//   mlp        that of `tersewire train`                                              0.3 M
std::vector<TensorInfo> model_tensors(std::string_view model, double scale = 1);

}  // namespace tersewire::bench
