// Codec terngrad: bytes worked by hand, a plain encoder to compare with, and the statistics of its
// draws.
#include <gtest/gtest.h>

#include "count_allocations.h"
#include "ternary_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr CodecId kTernGrad = CodecId::kTernGrad;

const std::vector<std::string> kPackings{"2bit", "base243", "zre"};

struct KnownAnswer {
  const char* text;
  Floats input;
  std::vector<int> payload;
};

TEST(TernGrad, KnownAnswers) {
  const std::vector<KnownAnswer> answers{
      // A value of the scaler's magnitude is always sent, 0 never. Fields of 1, 0 and 3 are 0x31.
      {"terngrad:clip=off,pack=2bit", {2, 0, -2}, {0, 0, 0, 0, 0x40, 0x31}},
      // Digits 2 1 0 | 1 1, padding behind the bar: 162 + 27 + 0 + 3 + 1 = 193.
      {"terngrad:clip=off,pack=base243", {2, 0, -2}, {1, 0, 0, 0, 0x40, 193}},
      {"terngrad:clip=off", {2, 0, -2}, {2, 0, 0, 0, 0x40, 193}},
      {"terngrad:pack=2bit", {0, -0.0F, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}},
      {"terngrad:pack=base243", {0, -0.0F, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 121, 121}},
      // 16 groups of zeros: 14 and 2.
      {"terngrad", Floats(80, 0.0F), {2, 0, 0, 0, 0, 255, 243}},
      {"terngrad", {}, {2, 0, 0, 0, 0}},
      {"terngrad:bucket=300", {}, {6, 0xAC, 2}},
      // Buckets of 1 and 4: digits 2 0 2 | 1 1: 162 + 0 + 18 + 3 + 1 = 184.
      {"terngrad:clip=off,bucket=2", {1, -1, 4}, {6, 2, 0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x40, 184}},
      // No deviation, no clipping: five 2s.
      {"terngrad", {3, 3, 3, 3, 3}, {2, 0, 0, 0x40, 0x40, 242}},
      // The deviation of 1 and 3 is 1: both count as 1. Digits 2 2 | 1 1 1: 162 + 54 + 13 = 229.
      {"terngrad:clip=1", {1, 3}, {2, 0, 0, 0x80, 0x3F, 229}},
      // The largest magnitude is the scaler where the limit is above it. The first word is 0.399 of
      // 2^32, above 1 / 3. Digits 1 2 | 1 1 1: 81 + 54 + 13 = 148.
      {"terngrad:clip=4", {1, 3}, {2, 0, 0, 0x40, 0x40, 148}},
      // The smallest denormal, and the largest float.
      {"terngrad", {kDenormal}, {2, 1, 0, 0, 0, 202}},
      {"terngrad", {-kLargest}, {2, 0xFF, 0xFF, 0x7F, 0x7F, 40}},
  };
  for (const KnownAnswer& answer : answers) {
    EXPECT_EQ(encoded(answer.text, answer.input), bytes_of(answer.payload))
        << answer.text << ", " << answer.input.size() << " values";
  }
}

// The parameters as text, in numbers, and the layout byte's packing.
struct Variant {
  std::string text;
  std::optional<double> clip;
  int packing;
  std::size_t bucket;
};

std::vector<Variant> variants(const std::vector<std::size_t>& buckets) {
  std::vector<Variant> made;
  for (const std::string clip : {"off", "2.5", "0.3"}) {
    for (int packing = 0; packing < 3; ++packing) {
      for (const std::size_t bucket : buckets) {
        made.push_back(
            {"terngrad:clip=" + clip + ",pack=" + kPackings[static_cast<std::size_t>(packing)] +
                 ",bucket=" + std::to_string(bucket),
             clip == "off" ? std::nullopt : std::optional(std::stod(clip)), packing, bucket});
      }
    }
  }
  return made;
}

TEST(TernGrad, IsWhatAPlainEncoderMakes) {
  for (const Variant& variant : variants({0, 1, 7, 64, 100, 1280, 5000})) {
    for (const std::size_t n : kTernaryLengths) {
      const auto seed = static_cast<unsigned>(n);
      expect_as_plain(variant.text, odd_values(n, seed), variant.clip, variant.packing,
                      variant.bucket);
      expect_as_plain(variant.text + ",ef=on", heavy_tailed(n, seed), variant.clip, variant.packing,
                      variant.bucket);
    }
  }
}

TEST(TernGrad, ClipsAboutTheMean) {
  // A sum of squares alone would make nothing of a deviation of 1e-4 about 1000.
  Floats input(10'000);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : input) value = 1000.0F + 0.125F * normal(random);
  for (const double clip : {1.0, 2.5}) {
    const float scaler =
        payload_scalers(kTernGrad, encoded("terngrad:clip=" + std::to_string(clip), input),
                        input.size())
            .scalers.at(0);
    EXPECT_NEAR(scaler, 0.125 * clip, 0.01 * clip);
  }
}

TEST(TernGrad, IsTheSameEverywhere) {
  for (const Variant& variant : variants({0, 7, 512})) {
    for (const std::size_t n : {0U, 1U, 63U, 1281U, 3000U}) {
      expect_same_everywhere(variant.text, odd_values(n, 5));
      expect_same_everywhere(variant.text + ",ef=on", heavy_tailed(n, 4));
    }
  }
  for (const std::string text :
       {"terngrad", "terngrad:ef=on,pack=2bit", "terngrad:pack=base243,clip=off",
        "terngrad:bucket=70001", "terngrad:bucket=300,ef=on"}) {
    expect_same_everywhere(text, heavy_tailed(300'001, 6));
  }
}

// Few values beside zeros: runs of zeros across threads, and another way to decode.
TEST(TernGrad, SparseTensorsAreTheSameEverywhere) {
  for (const std::size_t every : {9U, 40U, 501U, 90'001U}) {
    Floats input(170'003, 0.0F);
    for (std::size_t e = 0; e < input.size(); e += every) input[e] = e % 2 == 0 ? 1.0F : -0.7F;
    expect_same_everywhere("terngrad:clip=off", input);
    expect_same_everywhere("terngrad:clip=off,bucket=1000", input);
  }
}

// Outputs too large for the caches are written past them.
TEST(TernGrad, LargeOutputs) {
  constexpr std::size_t kElems = (std::size_t{1} << 21) + 1001;
  Floats input = heavy_tailed(kElems, 8);
  std::fill(input.begin(), input.begin() + 700'000, 0.0F);
  for (const std::string text : {"terngrad", "terngrad:pack=2bit", "terngrad:bucket=5000",
                                 "terngrad:clip=off,bucket=777777"}) {
    const Bytes payload = encoded(text, input);
    Floats added(kElems, 0.0F);
    decode_add(kTernGrad, payload, 1.0F, added);
    ThreadPool pool(2);
    for (const std::size_t offset : {0U, 1U, 3U}) {
      Floats out(kElems + 2 * offset, 42.0F);
      decode(kTernGrad, payload, std::span(out).subspan(offset, kElems), &pool);
      EXPECT_TRUE(std::equal(added.begin(), added.end(),
                             out.begin() + static_cast<std::ptrdiff_t>(offset)));
      EXPECT_EQ(std::count(out.begin(), out.end(), 42.0F), static_cast<std::ptrdiff_t>(2 * offset));
    }
  }
}

TEST(TernGrad, DrawsBySeedSenderTensorAndStep) {
  const Floats input = heavy_tailed(1000, 2);
  const EncoderContext context{.seed = 1, .sender = 2, .tensor = 3};
  const Bytes payload = encoded("terngrad", input, context, 4);
  EXPECT_EQ(encoded("terngrad", input, context, 4), payload);
  EXPECT_NE(encoded("terngrad", input, {.seed = 5, .sender = 2, .tensor = 3}, 4), payload);
  EXPECT_NE(encoded("terngrad", input, {.seed = 1, .sender = 5, .tensor = 3}, 4), payload);
  EXPECT_NE(encoded("terngrad", input, {.seed = 1, .sender = 2, .tensor = 5}, 4), payload);
  EXPECT_NE(encoded("terngrad", input, context, 5), payload);
}

TEST(TernGrad, IsUnbiased) {
  expect_unbiased("terngrad:clip=off", std::nullopt, 0);
  expect_unbiased("terngrad:clip=1.2", 1.2, 0);
  expect_unbiased("terngrad:clip=1.2,bucket=32", 1.2, 32);
}

// --- Scalers that all senders share

TEST(TernGrad, DigitsUnderSharedScalersAddUpExactly) {
  for (const std::size_t n : {0U, 1U, 500U, 20'003U}) {
    for (const std::string& packing : kPackings) {
      expect_exact_sums("terngrad:pack=" + packing, n, 0);
      expect_exact_sums("terngrad:clip=off,bucket=7,pack=" + packing, n, 7);
      expect_exact_sums("terngrad:ef=on,bucket=4096,pack=" + packing, n, 4096);
    }
  }
}

TEST(TernGrad, UnderItsOwnScalersATensorIsEncodedAsAlways) {
  for (const std::string text : {"terngrad", "terngrad:bucket=100,ef=on"}) {
    const Floats input = heavy_tailed(3000, 1);
    const auto encoder = make_codec(text)->make_encoder(input.size(), {.seed = 4});
    const auto own = encoder->local_scalers(input);
    Bytes out;
    encoder->encode_under(own, input, 6, out);
    EXPECT_EQ(out, encoded(text, input, {.seed = 4}, 6));
  }
}

TEST(TernGrad, RefusesScalersThatAreNoAgreement) {
  const Floats input = heavy_tailed(200, 1);
  const auto encoder = make_codec("terngrad:bucket=100,ef=on")->make_encoder(200);
  const auto own = encoder->local_scalers(input);
  ASSERT_EQ(own.size(), 2U);
  const std::vector<std::vector<float>> wrong{{},
                                              {own[0]},
                                              {own[0], own[1], 1},
                                              {own[0], std::nextafter(own[1], 0.0F)},
                                              {-own[0], own[1]},
                                              {own[0], std::nanf("")}};
  for (const auto& agreed : wrong) {
    Bytes out = bytes_of({7});
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                           [&] { encoder->encode_under(agreed, input, 0, out); }));
    EXPECT_EQ(out, bytes_of({7}));
  }
  EXPECT_EQ(bits_of(encoder->residual()), bits_of(Floats(200, 0.0F)));
  // A scaler of -0 has its sign bit set.
  const auto zeros = make_codec("terngrad")->make_encoder(3);
  Bytes out;
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                         [&] { zeros->encode_under(std::array{-0.0F}, Floats(3, 0.0F), 0, out); }));
}

TEST(TernGrad, WhatIsNotFiniteAnywhereTravelsAsItIsEverywhere) {
  const Floats input = heavy_tailed(200, 1);
  Floats bad = input;
  bad[7] = kInfinity;
  const std::array<float, 2> agreed{1, kInfinity};
  const auto encoder = make_codec("terngrad:bucket=100,ef=on")->make_encoder(200);
  EXPECT_EQ(encoder->local_scalers(bad), (std::vector{kInfinity, kInfinity}));
  const auto strict = make_codec("terngrad:bucket=100,non-finite=reject")->make_encoder(200);
  for (const bool is_bad : {false, true}) {
    const Floats& values = is_bad ? bad : input;
    const std::array<float, 2> offered{is_bad ? kInfinity : 1, kInfinity};
    Bytes out;
    const Encoded made = encoder->encode_under(offered, values, 0, out);
    EXPECT_EQ(made.codec, CodecId::kFp32);
    EXPECT_EQ(made.not_finite, is_bad);
    ASSERT_EQ(out.size(), 800U);
    EXPECT_EQ(std::memcmp(out.data(), values.data(), 800), 0);
    EXPECT_EQ(bits_of(encoder->residual()), bits_of(Floats(200, 0.0F)));
    EXPECT_EQ(fails_with(ErrorCode::kInvalidArgument,
                         [&] { strict->encode_under(offered, values, 0, out); }),
              is_bad);
  }
  Bytes out;
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, [&] { encoder->encode_under(agreed, bad, 0, out); }));
}

TEST(TernGrad, OtherCodecsHaveNoLevels) {
  std::vector<std::int32_t> levels(1);
  for (const char* text : {"fp32", "3lc"}) {
    const Bytes payload = encoded(text, {1});
    const CodecId codec = make_codec(text)->id();
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                           [&] { decode_levels_add(codec, payload, levels); }));
    EXPECT_TRUE(
        fails_with(ErrorCode::kInvalidArgument, [&] { payload_scalers(codec, payload, 1); }));
  }
}

// --- What is not finite, and memory

TEST(TernGrad, WhatIsNotFiniteTravelsAsItIs) {
  expect_raw_where_not_finite("terngrad");
  expect_raw_where_not_finite("terngrad:clip=off,bucket=100,ef=on");
}

TEST(TernGrad, AllocatesNothingOnceItsBufferHasGrown) {
  for (const char* text : {"terngrad", "terngrad:pack=2bit,ef=on", "terngrad:bucket=100",
                           "terngrad:clip=off,pack=base243"}) {
    expect_no_allocations(text);
  }
}

// --- Parameters

TEST(TernGrad, Parameters) {
  EXPECT_EQ(make_codec("terngrad")->text(),
            "terngrad:clip=2.5,pack=zre,bucket=0,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("terngrad:clip=off,pack=2bit,bucket=1099511627776,ef=on")->text(),
            "terngrad:clip=off,pack=2bit,bucket=1099511627776,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("terngrad:clip=1e6")->text(),
            "terngrad:clip=1000000,pack=zre,bucket=0,ef=off,non-finite=send");
  for (const char* text :
       {"terngrad:clip=0", "terngrad:clip=-1", "terngrad:clip=1000001", "terngrad:clip=nan",
        "terngrad:clip=on", "terngrad:clip=2x", "terngrad:pack=3bit", "terngrad:bucket=-1",
        "terngrad:bucket=1099511627777", "terngrad:bucket=1.5", "terngrad:s=1"}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { make_codec(text); })) << text;
  }
  const auto found = payload_parameters(kTernGrad, encoded("terngrad:clip=off", {2}));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].value, "zre");
  EXPECT_EQ(found[2].value, "2");
}

}  // namespace
}  // namespace tersewire
