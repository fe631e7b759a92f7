// Which tensor gets which codec.
#include "tersewire/policy.h"

#include <gtest/gtest.h>

#include "tersewire/error.h"

namespace tersewire {
namespace {

const std::vector<TensorInfo> kTensors{{"conv1.weight", {20, 1, 5, 5}, TensorKind::kConv},
                                       {"conv1.bias", {20}, TensorKind::kBias},
                                       {"bn.scale", {20}, TensorKind::kNorm},
                                       {"fc.weight", {10, 800}, TensorKind::kDense},
                                       {"fc.bias", {10}, TensorKind::kBias}};

// One letter a tensor: f for fp32, i for int8, 5 for 3lc with s = 1.5, 3 for 3lc otherwise.
std::string chosen(const std::string& policy, const std::string& fallback = "3lc",
                   const std::vector<TensorInfo>& tensors = kTensors) {
  std::string letters;
  for (const auto& codec : choose_codecs(policy, fallback, tensors)) {
    const std::string text = codec->text();
    if (text.starts_with("3lc")) {
      letters += text.find(",s=1.5,") != text.npos ? '5' : '3';
    } else {
      letters += text.front();
    }
  }
  return letters;
}

TEST(Policy, TheFirstRuleThatMatchesWins) {
  EXPECT_EQ(chosen(""), "33333");
  EXPECT_EQ(chosen("*:fp32"), "fffff");
  EXPECT_EQ(chosen("kind=bias:fp32; *:3lc:s=1.5"), "5f55f");
  EXPECT_EQ(chosen("kind=conv:3lc:s=1.5;*:fp32"), "5ffff");
}

TEST(Policy, ConditionsReadNameSizeRankKindAndPosition) {
  EXPECT_EQ(chosen("size<256:fp32"), "3ff3f");
  EXPECT_EQ(chosen("size<=20:fp32"), "3ff3f");
  EXPECT_EQ(chosen("size=500:fp32"), "f3333");
  EXPECT_EQ(chosen("size>=500:fp32"), "f33f3");
  EXPECT_EQ(chosen("size > 500 : fp32"), "333f3");
  EXPECT_EQ(chosen("rank=1:fp32"), "3ff3f");
  EXPECT_EQ(chosen("rank>2:fp32"), "f3333");
  EXPECT_EQ(chosen("name=*.bias:fp32"), "3f33f");
  EXPECT_EQ(chosen("name=fc.?ias:fp32"), "3333f");
  EXPECT_EQ(chosen("first:fp32"), "ff333");
  EXPECT_EQ(chosen("last:fp32"), "333ff");
}

TEST(Policy, ReadyMadeOnesNeedNotMatch) {
  EXPECT_EQ(chosen("3lc-paper"), "33f33");
  EXPECT_EQ(chosen("terngrad-paper"), "333ff");
  EXPECT_EQ(chosen("small"), "3ff3f");
  EXPECT_EQ(chosen("light"), "3ii3i");
  const auto adacomp = choose_codecs("adacomp-paper", "fp32", kTensors);
  for (std::size_t i = 0; i < adacomp.size(); ++i) {
    EXPECT_TRUE(adacomp[i]->text().starts_with(i == 0 ? "adacomp:bin=50," : "adacomp:bin=500,"));
  }
  const std::vector<TensorInfo> large{{"w", {1000}, TensorKind::kDense}};
  EXPECT_EQ(choose_codecs("small", "3lc", large).size(), 1U);
}

TEST(Policy, AutoIsLightBesideBlocksAndSmallBesideTheRest) {
  EXPECT_EQ(chosen("auto"), "3ii3i");
  EXPECT_EQ(chosen("auto", "3lc:s=1.5,lead=1"), "5ii5i");
  EXPECT_EQ(chosen("auto", "3lc:mode=paper"), "3ff3f");
  EXPECT_EQ(chosen("auto", "int8"), "iffif");
  // Small tensors lose nothing: what int8 rounds off stays in the residual.
  EXPECT_EQ(choose_codecs("auto", "3lc", kTensors)[1]->text(), "int8:ef=on,non-finite=send");
  const std::vector<TensorInfo> edge{{"w", {255}, TensorKind::kDense},
                                     {"v", {256}, TensorKind::kDense}};
  const auto codecs = choose_codecs("auto", "3lc", edge);
  EXPECT_EQ(codecs[0]->id(), CodecId::kInt8);
  EXPECT_EQ(codecs[1]->id(), CodecId::kThreeLc);
}

TEST(Policy, ExactTensorsGetFp32AndNoConditionSeesThem) {
  std::vector<TensorInfo> tensors = kTensors;
  tensors.push_back({.name = "counts", .shape = {300}, .exact = true});
  EXPECT_EQ(chosen("last:int8; *:3lc", "3lc", tensors), "333iif");
  EXPECT_EQ(chosen("", "int8", tensors), "iiiiif");
  EXPECT_THROW(chosen("name=counts:int8", "3lc", tensors), Error);
}

TEST(Policy, TensorsWithTheSameTextShareACodec) {
  const auto codecs = choose_codecs("kind=bias:fp32", "3lc", kTensors);
  EXPECT_EQ(codecs[1], codecs[4]);
  EXPECT_EQ(codecs[0], codecs[3]);
}

// Of 8,550 values fc.weight has 8,000, conv1.weight 500.
TEST(AdaptiveRateGain, IsThatOfTheCodecThatMostValuesHave) {
  const auto gain = [](const std::string& policy, const std::string& fallback) {
    return adaptive_rate_gain(kTensors, choose_codecs(policy, fallback, kTensors));
  };
  EXPECT_EQ(gain("auto", "3lc"), 1.5);
  EXPECT_EQ(gain("*:fp32", "3lc"), 1);
  EXPECT_EQ(gain("size>100:3lc:s=1.75", "fp32"), 2);
  EXPECT_EQ(gain("kind=conv:3lc:s=1.75", "fp32"), 1);
  EXPECT_EQ(gain("kind=dense:3lc:s=1.75", "3lc"), 2);
  EXPECT_EQ(adaptive_rate_gain({}, {}), 1);
  EXPECT_THROW(adaptive_rate_gain(kTensors, {}), Error);
}

void expect_refused(const std::string& policy, const std::string& part,
                    const std::string& fallback = "3lc") {
  try {
    choose_codecs(policy, fallback, kTensors);
    ADD_FAILURE() << "accepted '" << policy << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Policy, WhatCannotBeReadOrMatchesNothingIsRefused) {
  expect_refused("kind=recurrent:fp32", "'kind=recurrent:fp32' matches none");
  expect_refused("kind=recurrent:fp32", "of kind bias, conv, dense, norm");
  expect_refused("name=fc2*:fp32; *:3lc", "'name=fc2*:fp32' matches none");
  expect_refused("kind=banana:fp32", "banana");
  expect_refused("size<many:fp32", "size<many");
  expect_refused("size~5:fp32", "size~5");
  expect_refused("size<99999999999999999999999:fp32", "size<9");
  expect_refused("fp32", "no codec");
  expect_refused("*:fp33", "fp33");
  expect_refused("*:", "unknown codec ''");
  expect_refused("*:3lc:s=16", "s must be a number from 1 to below 16");
  // A codec that no tensor would get is looked at all the same.
  expect_refused("*:fp32", "s must be", "3lc:s=0.5");
}

}  // namespace
}  // namespace tersewire
