// Codec stoch3: bytes worked by hand, a plain encoder to compare with, and the statistics of its
// draws. ternary_payload_test has the malformed payloads.
#include <gtest/gtest.h>

#include "count_allocations.h"
#include "ternary_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

TEST(Stoch3, KnownAnswers) {
  // Digits 2 1 0 | 1 1, padding behind the bar: 162 + 27 + 0 + 3 + 1 = 193.
  EXPECT_EQ(encoded("stoch3:clip=off", {2, 0, -2}), bytes_of({1, 0, 0, 0, 0x40, 193}));
  EXPECT_EQ(encoded("stoch3:clip=off", {}), bytes_of({1, 0, 0, 0, 0}));
  EXPECT_EQ(encoded("stoch3:clip=off", {0, -0.0F, 0, 0, 0, 0}),
            bytes_of({1, 0, 0, 0, 0, 121, 121}));
  EXPECT_EQ(encoded("stoch3:clip=off", {kDenormal}), bytes_of({1, 1, 0, 0, 0, 202}));
  EXPECT_EQ(encoded("stoch3:clip=off", {-kLargest}), bytes_of({1, 0xFF, 0xFF, 0x7F, 0x7F, 40}));
}

// The words of the first block of seed 0 are 6627e8d5 e169c58d bc57ac4c 9b00dbd8 (Random123's
// kat_vectors): about 0.399, 0.880, 0.736 and 0.605.
TEST(Stoch3, DrawsWorkedByHand) {
  // Digits 2 1 0 2 | 1: 162 + 27 + 0 + 6 + 1 = 196.
  EXPECT_EQ(encoded("stoch3:clip=off", {0.5F, 0.5F, -0.8F, 1}),
            bytes_of({1, 0, 0, 0x80, 0x3F, 196}));
  // 0.39 and 0.73 are below theirs: 1 2 1 2 | 1: 81 + 54 + 9 + 6 + 1 = 151.
  EXPECT_EQ(encoded("stoch3:clip=off", {0.39F, 0.9F, -0.73F, 1}),
            bytes_of({1, 0, 0, 0x80, 0x3F, 151}));
  // What is kept is what was not sent.
  const auto encoder = make_codec("stoch3:clip=off,ef=on")->make_encoder(4);
  Bytes out;
  encoder->encode(Floats{0.5F, 0.5F, -0.75F, 1}, 0, out);
  EXPECT_EQ(Floats(encoder->residual().begin(), encoder->residual().end()),
            (Floats{-0.5F, 0.5F, 0.25F, 0}));
}

TEST(Stoch3, IsWhatAPlainEncoderMakes) {
  for (const std::size_t n : kTernaryLengths) {
    const auto seed = static_cast<unsigned>(n);
    expect_as_plain("stoch3:clip=off", odd_values(n, seed), std::nullopt, 1, 0);
    expect_as_plain("stoch3", heavy_tailed(n, seed), 2.5, 1, 0);
    expect_as_plain("stoch3:clip=off,ef=on", heavy_tailed(n, seed), std::nullopt, 1, 0);
  }
}

TEST(Stoch3, IsTheSameEverywhere) {
  for (const std::size_t n : kTernaryLengths) {
    expect_same_everywhere("stoch3", odd_values(n, 5));
    expect_same_everywhere("stoch3:clip=off,ef=on", heavy_tailed(n, 4));
  }
  expect_same_everywhere("stoch3", heavy_tailed(300'001, 6));
  expect_same_everywhere("stoch3:clip=off,ef=on", heavy_tailed(300'001, 6));
}

TEST(Stoch3, IsUnbiased) { expect_unbiased("stoch3:clip=off", std::nullopt, 0); }

TEST(Stoch3, DigitsUnderSharedScalersAddUpExactly) {
  for (const std::size_t n : {0U, 1U, 500U, 20'003U}) expect_exact_sums("stoch3", n, 0);
}

TEST(Stoch3, WhatIsNotFiniteTravelsAsItIs) {
  expect_raw_where_not_finite("stoch3");
  expect_raw_where_not_finite("stoch3:clip=off,ef=on");
}

TEST(Stoch3, AllocatesNothingOnceItsBufferHasGrown) {
  expect_no_allocations("stoch3");
  expect_no_allocations("stoch3:clip=off,ef=on");
}

TEST(Stoch3, Parameters) {
  EXPECT_EQ(make_codec("stoch3")->text(), "stoch3:clip=2.5,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("stoch3:clip=off")->text(), "stoch3:clip=off,ef=off,non-finite=send");
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [] { make_codec("stoch3:clip=0"); }));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [] { make_codec("stoch3:bucket=4"); }));
  const auto found = payload_parameters(CodecId::kStoch3, encoded("stoch3:clip=off", {2}));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].value, "base243");
  EXPECT_EQ(found[2].value, "2");
}

}  // namespace
}  // namespace tersewire
