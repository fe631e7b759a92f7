// The built-in networks have as many values as their papers and the usual implementations say.
#include "apps/bench/model_tensors.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>

#include "tersewire/error.h"

namespace tersewire::bench {
namespace {

std::size_t values_of(const std::vector<TensorInfo>& tensors) {
  std::size_t values = 0;
  for (const TensorInfo& tensor : tensors) values += tensor.elems();
  return values;
}

TEST(ModelTensors, HaveAsManyValuesAsTheNetworks) {
  const std::map<std::string, std::size_t> known = {
      {"resnet110", 1'727'962},  // 1.7 M (He et al., table 6)
      {"resnet50", 25'557'032},  // torchvision's
      {"alexnet", 61'100'840},   // torchvision's
      {"vgg16", 138'357'544},    // "138 million" (Simonyan and Zisserman, table 2)
      {"vgg-a", 132'863'336},    // torchvision's vgg11; "133 million" in table 2
      // Two values a channel of its 5 convolutions in place of one.
      {"alexnet-bn", 61'100'840 + 64 + 192 + 384 + 256 + 256},
      // Caffe's without its auxiliary classifiers, and two values in place of one for each of the
      // convolutions' channels, 320 before the blocks, 368 in 3a, and so on.
      {"googlenet", 6'998'552 + 320 + 368 + 640 + 624 + 648 + 664 + 704 + 1024 + 1024 + 1264},
      {"hdc", 1'149'010},     // 785 * 500 + 3 * 501 * 500 + 501 * 10
      {"lenet", 431'080},     // Caffe's
      {"lstm", 3'320'385},    // the recorded gradients'
      {"resnet56", 853'018},  // 0.85 M (He et al., table 6)
      {"resnet32", 464'154},  // 0.46 M
      {"resnet20", 269'722},  // 0.27 M
      {"mlp", 327'880}};      // 785 * 392 + 393 * 50 + 51 * 10
  const auto names = model_names();
  EXPECT_EQ(names.size(), known.size());
  for (const std::string& name : names) {
    EXPECT_EQ(values_of(model_tensors(name)), known.at(name)) << name;
  }
  // INCEPTIONN, table I: 233 MB.
  EXPECT_EQ(known.at("alexnet") * sizeof(float) >> 20, 233U);
}

TEST(ModelTensors, AreNamedOnceAndSaidWhatTheyAre) {
  for (const std::string& model : model_names()) {
    std::set<std::string> names;
    for (const TensorInfo& tensor : model_tensors(model)) {
      EXPECT_TRUE(names.insert(tensor.name).second) << model << ' ' << tensor.name;
      const bool weight = tensor.shape.size() > 1;
      const bool vector = tensor.kind == TensorKind::kBias || tensor.kind == TensorKind::kNorm;
      EXPECT_NE(weight, vector) << model << ' ' << tensor.name;
    }
  }
}

// Each layer's values fit those of the layers before it.
TEST(ModelTensors, GoForward) {
  const auto tensors = model_tensors("resnet110");
  ASSERT_EQ(tensors.front().name, "conv1.weight");
  EXPECT_EQ(tensors.front().shape, (std::vector<std::uint64_t>{16, 3, 3, 3}));
  EXPECT_EQ(tensors.back().name, "fc.bias");
  std::size_t layers = 0;
  std::uint64_t channels = 3;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.shape.size() < 2) continue;
    ++layers;
    EXPECT_EQ(tensor.shape[1], channels) << tensor.name;
    channels = tensor.shape[0];
  }
  EXPECT_EQ(layers, 110U);
}

TEST(ModelTensors, AreScaledByTheirFirstDimension) {
  const auto tensors = model_tensors("alexnet", 0.1);
  EXPECT_EQ(tensors[0].shape, (std::vector<std::uint64_t>{7, 3, 11, 11}));
  EXPECT_EQ(tensors.back().shape, std::vector<std::uint64_t>{100});
  EXPECT_NEAR(static_cast<double>(values_of(tensors)), 6.11e6, 0.02e6);
  for (const TensorInfo& tensor : model_tensors("lenet", 1e-9)) EXPECT_EQ(tensor.shape[0], 1U);
}

TEST(ModelTensors, RefuseWhatThereIsNot) {
  const auto sentence = [](const char* model, double scale) {
    try {
      model_tensors(model, scale);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(sentence("vgg19", 1).find("resnet110, resnet50"), std::string::npos);
  for (const double scale : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(sentence("lenet", scale), "") << scale;
  }
}

}  // namespace
}  // namespace tersewire::bench
