// The models, each as a function that builds it; grouped by the files that define them.
#pragma once

#include "trainer/models/model_maker.h"

namespace tersewire::trainer {

// dense_models.cpp
void build_mlp(ModelMaker& make);
void build_small_mlp(ModelMaker& make);
void build_hdc(ModelMaker& make);
void build_bn50(ModelMaker& make);

// small_convnets.cpp
void build_lenet(ModelMaker& make);
void build_mnist_cnn(ModelMaker& make);
void build_cifar_cnn(ModelMaker& make);
void build_cifarnet(ModelMaker& make);

// resnet_cifar.cpp
void build_resnet20(ModelMaker& make);
void build_resnet32(ModelMaker& make);
void build_resnet56(ModelMaker& make);
void build_resnet110(ModelMaker& make);

// resnet_imagenet.cpp
void build_resnet18(ModelMaker& make);
void build_resnet50(ModelMaker& make);

// alexnet_vgg.cpp
void build_alexnet(ModelMaker& make);
void build_alexnet_bn(ModelMaker& make);
void build_vgg16(ModelMaker& make);
void build_vgg_a(ModelMaker& make);

// googlenet.cpp
void build_googlenet(ModelMaker& make);

// lstm.cpp
void build_lstm(ModelMaker& make);

// gpt.cpp
void build_gpt(ModelMaker& make);

}  // namespace tersewire::trainer
