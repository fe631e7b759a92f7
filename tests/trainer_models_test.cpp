// The trainer's models: their parameters, their seeds, and the hook before each layer.
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
#include "trainer/models/models.h"

namespace tersewire::trainer {
namespace {

using Shape = std::vector<std::int64_t>;

struct Expected {
  std::string name;
  std::string kind;
  Shape shape;
};

void expect_parameters(const std::string& model_name, const std::vector<Expected>& expected) {
  const auto model = make_model(model_name, 1);
  EXPECT_EQ(model->name(), model_name);
  ASSERT_EQ(model->parameters().size(), expected.size());
  ASSERT_EQ(model->tensors().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Parameter& parameter = model->parameters()[i];
    EXPECT_EQ(parameter.name, expected[i].name);
    EXPECT_EQ(parameter.kind, expected[i].kind) << parameter.name;
    EXPECT_EQ(parameter.value.sizes().vec(), expected[i].shape) << parameter.name;
    EXPECT_EQ(parameter.value.scalar_type(), torch::kFloat32);
    EXPECT_TRUE(parameter.value.is_contiguous() && parameter.value.is_leaf());
    EXPECT_TRUE(parameter.value.requires_grad());
    EXPECT_TRUE(model->tensors()[i].is_same(parameter.value));
  }
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

// Images that differ from each other and from run to run do not.
torch::Tensor ramp(std::int64_t batch) {
  return torch::arange(batch * 784, torch::kFloat32).reshape({batch, 1, 28, 28}) /
         static_cast<double>(batch * 784);
}

TEST(Models, LeNetHasCaffesParameters) {
  expect_parameters("lenet", {{"conv1.weight", "conv", {20, 1, 5, 5}},
                              {"conv1.bias", "bias", {20}},
                              {"conv2.weight", "conv", {50, 20, 5, 5}},
                              {"conv2.bias", "bias", {50}},
                              {"fc1.weight", "dense", {500, 800}},
                              {"fc1.bias", "bias", {500}},
                              {"fc2.weight", "dense", {10, 500}},
                              {"fc2.bias", "bias", {10}}});
  EXPECT_EQ(make_model("lenet", 1)->elems(), 431080U);
}

TEST(Models, MlpHasThreeDenseLayers) {
  expect_parameters("mlp", {{"fc1.weight", "dense", {392, 784}},
                            {"fc1.bias", "bias", {392}},
                            {"fc2.weight", "dense", {50, 392}},
                            {"fc2.bias", "bias", {50}},
                            {"fc3.weight", "dense", {10, 50}},
                            {"fc3.bias", "bias", {10}}});
  EXPECT_EQ(make_model("mlp", 1)->elems(), 784U * 392 + 392 + 392 * 50 + 50 + 50 * 10 + 10);
}

TEST(Models, NamesAreThoseThatCanBeMade) {
  EXPECT_EQ(model_names(), (std::vector<std::string>{"mlp", "lenet"}));
  try {
    make_model("resnet", 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "there is no model 'resnet'; choose one of: mlp, lenet");
  }
}

class EveryModel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(model_names()),
                         [](const auto& test) { return test.param; });

TEST_P(EveryModel, SeedDecidesTheWeightsAlone) {
  torch::manual_seed(1);
  const auto first = make_model(GetParam(), 7);
  torch::manual_seed(2);
  std::unique_ptr<Model> second;
  std::thread([&] { second = make_model(GetParam(), 7); }).join();
  EXPECT_TRUE(same_bits(*first, *second));
  const auto other = make_model(GetParam(), 8);
  for (std::size_t i = 0; i < first->parameters().size(); ++i) {
    EXPECT_FALSE(same_bits(first->parameters()[i].value, other->parameters()[i].value))
        << first->parameters()[i].name;
  }
}

// By hand from the formula: (2 u - 1) / 5 with u the first draw's upper 24 bits over 2^24.
TEST(Models, FirstWeightsAreKnown) {
  const auto model = make_model("lenet", 1);
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
  make_model(GetParam(), 7);
  EXPECT_TRUE(same_bits(torch::rand({4}), expected));
}

// Uniform within 1 / sqrt(fan-in), biases included: nothing beyond, and something near each end.
TEST_P(EveryModel, WeightsAreUniformWithinTheirBound) {
  const auto model = make_model(GetParam(), 3);
  double bound = 0;
  for (const Parameter& parameter : model->parameters()) {
    const torch::Tensor value = parameter.value.detach();
    if (parameter.kind != "bias") {
      bound = 1 / std::sqrt(static_cast<double>(value.numel() / value.size(0)));
      EXPECT_NEAR(value.mean().item<double>() / bound, 0, 0.12) << parameter.name;
    }
    EXPECT_LE(value.abs().max().item<double>(), bound * (1 + 1e-6)) << parameter.name;
    EXPECT_GT(value.max().item<double>(), 0.5 * bound) << parameter.name;
    EXPECT_LT(value.min().item<double>(), -0.5 * bound) << parameter.name;
  }
}

TEST_P(EveryModel, HookComesInOrderAndCoversEveryParameterOnce) {
  const auto model = make_model(GetParam(), 1);
  std::size_t next = 0;
  std::ignore = model->forward(ramp(2), [&](std::size_t first, std::size_t count) {
    EXPECT_EQ(first, next);
    EXPECT_EQ(count, 2U);  // a weight and its bias
    next = first + count;
  });
  EXPECT_EQ(next, model->parameters().size());
}

// A model whose parameters are only filled in by the hook, and spoilt outside of their turn,
// computes the same scores: so each call comes before the parameters are read.
TEST_P(EveryModel, HookComesBeforeTheParametersAreUsed) {
  const torch::NoGradGuard no_grad;
  const auto source = make_model(GetParam(), 1);
  const auto model = make_model(GetParam(), 2);
  for (const Parameter& parameter : model->parameters()) parameter.value.fill_(NAN);
  const torch::Tensor scores = model->forward(ramp(3), [&](std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      const torch::Tensor& value = model->parameters()[i].value;
      if (i < first || i >= first + count) {
        value.fill_(NAN);
      } else {
        value.copy_(source->parameters()[i].value);
      }
    }
  });
  EXPECT_TRUE(same_bits(scores, source->forward(ramp(3))));
}

TEST_P(EveryModel, WhatTheHookThrowsPassesThrough) {
  const auto model = make_model(GetParam(), 1);
  EXPECT_THROW(
      std::ignore = model->forward(
          ramp(1), [](std::size_t, std::size_t) { throw Error(ErrorCode::kAborted, "stop"); }),
      Error);
}

TEST_P(EveryModel, FlatImagesAreTaken) {
  const auto model = make_model(GetParam(), 1);
  const torch::Tensor scores = model->forward(ramp(5));
  EXPECT_EQ(scores.sizes().vec(), (Shape{5, 10}));
  EXPECT_TRUE(same_bits(scores, model->forward(ramp(5).reshape({5, 784}))));
}

TEST_P(EveryModel, OtherShapesAreRefused) {
  const auto model = make_model(GetParam(), 1);
  for (const torch::Tensor& x :
       {torch::zeros({2, 1, 28, 27}), torch::zeros({784}), torch::zeros({0, 784}),
        torch::zeros({2, 1, 28, 28}, torch::kFloat64), torch::Tensor()}) {
    try {
      std::ignore = model->forward(x);
      ADD_FAILURE() << "no error for " << x.sizes();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("[batch, 1, 28, 28]"), std::string::npos);
    }
  }
}

TEST_P(EveryModel, EveryParameterGetsAGradientAndAStepLowersTheLoss) {
  const auto model = make_model(GetParam(), 1);
  const torch::Tensor labels = torch::tensor({3, 1, 4, 1}, torch::kLong);
  const auto loss = [&] { return torch::cross_entropy_loss(model->forward(ramp(4)), labels); };
  const torch::Tensor before = loss();
  before.backward();
  for (const Parameter& parameter : model->parameters()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.value.grad().abs().sum().item<double>(), 0) << parameter.name;
  }
  torch::optim::SGD(model->tensors(), torch::optim::SGDOptions(0.01)).step();
  EXPECT_LT(loss().item<double>(), before.item<double>());
}

}  // namespace
}  // namespace tersewire::trainer
