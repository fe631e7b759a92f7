// The models as libtorch computes them: their weights, what a forward pass takes and gives, batch
// normalization and dropout. network_test.cpp tests what the training loop sees of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tersewire/error.h"
#include "trainer/models/layers.h"
#include "trainer/models/model_maker.h"

namespace tersewire::trainer {
namespace {

using Shape = std::vector<std::int64_t>;

std::unique_ptr<Model> make(const std::string& name, std::uint64_t seed = 1) {
  return Model::make(name, {0, seed, {}});
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bytes = static_cast<std::size_t>(a.numel()) * sizeof(float);
  return a.sizes() == b.sizes() &&
         std::memcmp(a.data_ptr<float>(), b.data_ptr<float>(), bytes) == 0;
}

bool same_bits(const Model& a, const Model& b) {
  return std::equal(
      a.parameters().begin(), a.parameters().end(), b.parameters().begin(), b.parameters().end(),
      [](const Parameter& x, const Parameter& y) { return same_bits(x.value, y.value); });
}

// Samples that differ from each other and from run to run do not.
torch::Tensor ramp(const Model& model, std::int64_t batch) {
  Shape shape = model.takes().shape;
  shape.insert(shape.begin(), batch);
  const std::int64_t elems = torch::empty(shape, torch::kMeta).numel();
  return torch::arange(elems, torch::kFloat32).reshape(shape) / static_cast<double>(elems);
}

// One of each family.
class EveryModel : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Values("mlp", "lenet", "cifarnet", "resnet20", "bn50"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Models, TensorsAreLeavesThatWantGradients) {
  for (const char* name : {"lenet", "resnet20", "lstm"}) {
    const auto model = make(name);
    ASSERT_EQ(model->tensors().size(), model->parameters().size());
    for (std::size_t i = 0; i < model->tensors().size(); ++i) {
      const torch::Tensor& value = model->parameters()[i].value;
      EXPECT_EQ(value.scalar_type(), torch::kFloat32);
      EXPECT_TRUE(value.is_contiguous() && value.is_leaf() && value.requires_grad());
      EXPECT_TRUE(model->tensors()[i].is_same(value));
    }
    for (const Parameter& statistic : model->statistics()) {
      EXPECT_FALSE(statistic.value.requires_grad()) << statistic.name;
    }
  }
}

TEST_P(EveryModel, SeedDecidesTheWeightsAlone) {
  torch::manual_seed(1);
  const auto first = make(GetParam(), 7);
  torch::manual_seed(2);
  std::unique_ptr<Model> second;
  std::thread([&] { second = make(GetParam(), 7); }).join();
  EXPECT_TRUE(same_bits(*first, *second));
  const auto other = make(GetParam(), 8);
  for (std::size_t i = 0; i < first->parameters().size(); ++i) {
    const torch::Tensor value = first->parameters()[i].value.detach();
    const bool drawn = value.min().item<float>() < value.max().item<float>();
    EXPECT_NE(same_bits(value, other->parameters()[i].value), drawn) << first->parameters()[i].name;
  }
}

// By hand from the formula: (2 u - 1) / 5 with u the first draw's upper 24 bits over 2^24.
TEST(Models, FirstWeightsAreKnown) {
  const auto model = make("lenet");
  const float* weights = model->parameters()[0].value.data_ptr<float>();
  EXPECT_EQ(weights[0], -0x1.5d1c860000000p-3F);
  EXPECT_EQ(weights[1], -0x1.e8f3ce0000000p-5F);
  const float* bias = model->parameters()[1].value.data_ptr<float>();
  EXPECT_EQ(bias[0], 0x1.398b340000000p-10F);
}

TEST_P(EveryModel, GlobalGeneratorIsLeftAlone) {
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  const auto model = make(GetParam(), 7);
  Pass pass;
  pass.training = true;
  std::ignore = model->forward(ramp(*model, 2), pass);
  EXPECT_TRUE(same_bits(torch::rand({4}), expected));
}

// Uniform within `bound`: nothing beyond, something near each end, nothing to one side.
void expect_uniform(const Parameter& parameter, double bound) {
  const torch::Tensor value = parameter.value.detach();
  EXPECT_LE(value.abs().max().item<double>(), bound * (1 + 1e-6)) << parameter.name;
  EXPECT_GT(value.max().item<double>(), 0.5 * bound) << parameter.name;
  EXPECT_LT(value.min().item<double>(), -0.5 * bound) << parameter.name;
  if (value.numel() > 400) {
    EXPECT_NEAR(value.mean().item<double>() / bound, 0, 0.12) << parameter.name;
  }
}

double fan_in(const Parameter& parameter) {
  return static_cast<double>(parameter.value.numel()) /
         static_cast<double>(parameter.value.size(0));
}

// Within 1 / sqrt(fan-in), biases included.
TEST(Models, WeightsAreUniformWithinTheirBound) {
  for (const char* name : {"mlp", "lenet", "cifarnet"}) {
    double bound = 0;
    const auto model = make(name, 3);
    for (const Parameter& parameter : model->parameters()) {
      if (parameter.kind != "bias") bound = 1 / std::sqrt(fan_in(parameter));
      expect_uniform(parameter, bound);
    }
  }
}

// Variance 2 / fan-in; factors 1 and summands 0, running means 0 and variances 1.
TEST(Models, ResNetsStartAsTheirPaperSays) {
  const auto model = make("resnet20", 3);
  for (const Parameter& parameter : model->parameters()) {
    const torch::Tensor value = parameter.value.detach();
    if (parameter.kind == "conv") {
      expect_uniform(parameter, std::sqrt(6 / fan_in(parameter)));
      EXPECT_NEAR(value.var().item<double>() * fan_in(parameter), 2, 0.2) << parameter.name;
    } else if (parameter.kind == "norm") {
      const bool factor = parameter.name.find(".weight") != std::string::npos;
      EXPECT_TRUE(value.eq(factor ? 1 : 0).all().item<bool>()) << parameter.name;
    }
  }
  for (const Parameter& statistic : model->statistics()) {
    const bool variance = statistic.name.find("var") != std::string::npos;
    EXPECT_TRUE(statistic.value.eq(variance ? 1 : 0).all().item<bool>()) << statistic.name;
  }
}

// Glorot and Bengio's rule, without VGG-16's half a gigabyte.
TEST(Models, GlorotsBoundCountsBothFans) {
  ModelMaker maker({{9}, 1, false}, {0, 1, {}});
  maker.draw(ModelMaker::Weights::kGlorot);
  maker.weight_and_bias("conv", "conv", {64, 8, 3, 3});
  maker.layer(flatten);
  const auto model = maker.take();
  expect_uniform(model->parameters()[0], std::sqrt(6.0 / (8 * 9 + 64 * 9)));
  EXPECT_TRUE(model->parameters()[1].value.eq(0).all().item<bool>());
}

TEST(Models, AGptStartsAsItsPaperSays) {
  const auto model = make("gpt", 3);
  for (const Parameter& parameter : model->parameters()) {
    if (parameter.kind == "bias" || parameter.kind == "norm") continue;
    EXPECT_NEAR(parameter.value.std().item<float>(), 0.02, 5e-4) << parameter.name;
  }
}

TEST(Models, ForgetGatesStartOpen) {
  const auto model = make("lstm", 3);
  EXPECT_EQ(model->parameters()[2].name, "lstm1.bias_ih");
  const torch::Tensor bias = model->parameters()[2].value.detach();
  EXPECT_TRUE(bias.slice(0, 512, 1024).eq(1).all().item<bool>());
  EXPECT_LE(bias.slice(0, 0, 512).abs().max().item<float>(), 0.08F);
  EXPECT_LE(bias.slice(0, 1024).abs().max().item<float>(), 0.08F);
  expect_uniform(model->parameters()[1], 0.08F);
}

TEST_P(EveryModel, WhatTheHookThrowsPassesThrough) {
  const auto model = make(GetParam());
  Pass pass;
  pass.before_layer = [](std::size_t, std::size_t) { throw Error(ErrorCode::kAborted, "stop"); };
  EXPECT_THROW(std::ignore = model->forward(ramp(*model, 1), pass), Error);
}

TEST_P(EveryModel, FlatSamplesAreTaken) {
  const auto model = make(GetParam());
  const torch::Tensor x = ramp(*model, 5);
  const torch::Tensor scores = model->forward(x);
  EXPECT_EQ(scores.sizes().vec(), (Shape{5, model->takes().classes}));
  EXPECT_TRUE(same_bits(scores, model->forward(x.flatten(1))));
}

std::string refusal(const Model& model, const torch::Tensor& x) {
  try {
    std::ignore = model.forward(x);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Models, OtherShapesAreRefused) {
  const auto lenet = make("lenet");
  for (const torch::Tensor& x :
       {torch::zeros({2, 1, 28, 27}), torch::zeros({784}), torch::zeros({0, 784}),
        torch::zeros({2, 1, 28, 28}, torch::kFloat64), torch::Tensor()}) {
    EXPECT_NE(refusal(*lenet, x).find("[batch, 1, 28, 28]"), std::string::npos);
  }
  const auto lstm = make("lstm");
  for (const torch::Tensor& x : {torch::zeros({2, 5}), torch::zeros({5}, torch::kInt64),
                                 torch::zeros({2, 5, 65}, torch::kInt64), torch::Tensor()}) {
    EXPECT_NE(refusal(*lstm, x).find("[batch, characters]"), std::string::npos);
  }
}

TEST(Models, LargeNetworksClassifyImages) {
  const torch::NoGradGuard no_grad;
  for (const char* name : {"resnet18", "googlenet", "alexnet", "alexnet-bn"}) {
    const auto model = make(name);
    EXPECT_EQ(model->forward(ramp(*model, 1)).sizes().vec(), (Shape{1, 1000})) << name;
  }
}

// Without memory; running one is nobody's business.
TEST(Models, ShapesAloneTakeNoMemory) {
  for (const char* name : {"vgg16", "resnet110", "lstm"}) {
    const auto model = Model::make(name, {});
    for (const Parameter& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.value.is_meta()) << parameter.name;
    }
  }
}

// Against a cell written out: gates in the order input, forget, cell, output; state 0 at first.
TEST(Models, LstmIsAnLstm) {
  const torch::NoGradGuard no_grad;
  const auto model = make("lstm");
  const auto& p = model->tensors();
  const torch::Tensor characters = torch::tensor({{3, 1, 4}, {1, 5, 9}}, torch::kInt64);
  torch::Tensor x = torch::one_hot(characters, 65).to(torch::kFloat32);
  for (const std::size_t layer : {0U, 4U}) {
    torch::Tensor h = torch::zeros({2, 512});
    torch::Tensor c = torch::zeros({2, 512});
    std::vector<torch::Tensor> outputs;
    for (std::int64_t t = 0; t < 3; ++t) {
      const auto gates = (torch::linear(x.select(1, t), p[layer], p[layer + 2]) +
                          torch::linear(h, p[layer + 1], p[layer + 3]))
                             .chunk(4, 1);
      c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
      h = gates[3].sigmoid() * c.tanh();
      outputs.push_back(h);
    }
    x = torch::stack(outputs, 1);
  }
  const torch::Tensor expected = torch::linear(x, p[8], p[9]).flatten(0, 1);
  EXPECT_TRUE(model->forward(characters).allclose(expected, 1e-4, 1e-5));
}

TEST(Models, AGptLooksBackAlone) {
  const torch::NoGradGuard no_grad;
  const auto model = make("gpt");
  torch::Tensor x = torch::arange(64, torch::kInt64).reshape({1, 64});
  const torch::Tensor before = model->forward(x);
  EXPECT_EQ(before.sizes().vec(), (Shape{64, 65}));
  x[0][40] = 64;
  const torch::Tensor after = model->forward(x);
  const torch::Tensor changed = (after - before).abs().amax(1);
  EXPECT_EQ(changed.slice(0, 0, 40).max().item<float>(), 0);
  EXPECT_GT(changed.slice(0, 40).min().item<float>(), 0);
}

TEST(Models, AGptTellsPlacesApart) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor scores = make("gpt")->forward(torch::zeros({1, 2}, torch::kInt64));
  EXPECT_FALSE(scores[0].allclose(scores[1]));
  EXPECT_NE(refusal(*make("gpt"), torch::zeros({1, 65}, torch::kInt64)).find("at most 64"),
            std::string::npos);
}

// What a batch's scores are does not depend on what else is in it, but in training.
TEST(BatchNormalization, EvaluationGoesByRunningStatistics) {
  const torch::NoGradGuard no_grad;
  const auto model = make("resnet20");
  const torch::Tensor x = ramp(*model, 4);
  Pass training;
  training.training = true;
  const torch::Tensor learned = model->forward(x, training);
  EXPECT_FALSE(learned.slice(0, 0, 1).allclose(model->forward(x.slice(0, 0, 1), training)));
  const torch::Tensor scores = model->forward(x);
  EXPECT_TRUE(scores.slice(0, 0, 1).allclose(model->forward(x.slice(0, 0, 1)), 1e-4, 1e-5));
}

// A batch counts for a tenth; the variance is the unbiased one.
TEST(BatchNormalization, RunningStatisticsFollowTheBatches) {
  const torch::NoGradGuard no_grad;
  const auto model = make("resnet20");
  const torch::Tensor x = ramp(*model, 4);
  const torch::Tensor y =
      torch::conv2d(x, model->parameters()[0].value, {}, 1, 1).transpose(0, 1).flatten(1);
  Pass training;
  training.training = true;
  std::ignore = model->forward(x, training);
  EXPECT_TRUE(model->statistics()[0].value.allclose(0.1 * y.mean(1), 1e-4, 1e-6));
  EXPECT_TRUE(model->statistics()[1].value.allclose(0.9 + 0.1 * y.var(1), 1e-4, 1e-6));
}

TEST(Dropout, TakesItsPartOutAndScalesTheRest) {
  ModelMaker maker({{10000}, 10, false}, {0, 1, {}});
  maker.dropout(0.25);
  const auto model = maker.take();
  const torch::Tensor x = torch::ones({2, 10000});
  EXPECT_TRUE(same_bits(model->forward(x), x));
  Pass pass;
  pass.training = true;
  const torch::Tensor y = model->forward(x, pass);
  const torch::Tensor dropped = y.eq(0);
  EXPECT_TRUE(dropped.logical_or(y.eq(static_cast<float>(1 / 0.75))).all().item<bool>());
  EXPECT_NEAR(dropped.to(torch::kFloat32).mean().item<double>(), 0.25, 0.015);
  EXPECT_FALSE(same_bits(y.slice(0, 0, 1), y.slice(0, 1, 2)));
  EXPECT_TRUE(same_bits(model->forward(x, pass), y));
  pass.draws = 1;
  EXPECT_FALSE(same_bits(model->forward(x, pass), y));
}

}  // namespace
}  // namespace tersewire::trainer
