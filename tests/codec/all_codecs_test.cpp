// What holds for every codec there is, whatever it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "codec_test_support.h"
#include "tersewire/message.h"
#include "tersewire/thread_pool.h"

namespace tersewire::test {
namespace {

class EveryCodec : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::shared_ptr<const Codec> codec() const { return make_codec(GetParam()); }
  // With a residual where the codec can keep one.
  [[nodiscard]] std::shared_ptr<const Codec> codec_with_residual() const {
    const char separator = GetParam().find(':') == std::string::npos ? ':' : ',';
    return make_codec(GetParam() == "fp32" ? "fp32" : GetParam() + separator + "ef=on");
  }
};

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const CodecDescription& codec : codec_descriptions()) found.push_back(codec.name);
  return found;
}

// Each codec by itself, and what has another mode or setting that changes how it works.
std::vector<std::string> texts() {
  std::vector<std::string> found = names();
  for (const char* text : {"3lc:mode=paper", "3lc:mode=paper,lead=2.5", "3lc:lead=1",
                           "3lc:block=64,s=3", "adacomp:lead=1.5", "local-selection:lead=2",
                           "dryden:lead=3", "topk:lead=1.25", "mqe1bit:lead=2", "signsgd:lead=2"}) {
    found.emplace_back(text);
  }
  return found;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

TEST(Codecs, AreThese) {
  const std::vector<std::string> found = names();
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()),
            (std::set<std::string>{"fp32", "3lc", "terngrad", "stoch3", "qsgd", "inceptionn",
                                   "adacomp", "local-selection", "dryden", "topk", "int8",
                                   "mqe1bit", "signsgd", "oland-raj", "truncate", "fp16", "bf16"}));
}

TEST_P(EveryCodec, MakesItselfFromItsText) {
  EXPECT_EQ(make_codec(codec()->text())->text(), codec()->text());
  EXPECT_EQ(codec_name(codec()->id()), GetParam().substr(0, GetParam().find(':')));
}

TEST_P(EveryCodec, StaysBelowItsBoundAtEveryLength) {
  for (std::size_t n = 0; n <= 70; ++n) {
    for (const unsigned seed : {1U, 2U}) {
      const Floats input = seed == 1 ? heavy_tailed(n, seed) : odd_values(n, seed);
      const auto encoder = codec()->make_encoder(n);
      Bytes payload;
      const Encoded encoded = encoder->encode(input, 0, payload);
      EXPECT_LE(payload.size(), codec()->max_encoded_bytes(n)) << n;
      EXPECT_NO_THROW(check_payload(encoded.codec, payload, n)) << n;
    }
  }
}

TEST_P(EveryCodec, WhatWasSentAndTheResidualAreTheInput) {
  const Floats input = heavy_tailed(5003, 3);
  const auto encoder = codec_with_residual()->make_encoder(input.size());
  const float lead = lead_of(*codec_with_residual());
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<float> before(encoder->residual().begin(), encoder->residual().end());
    before.resize(input.size());
    Bytes payload;
    const Encoded encoded = encoder->encode(input, step, payload);
    std::vector<float> sent(input.size());
    decode(encoded.codec, payload, sent);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      // fp32 keeps none, because nothing is left.
      const float kept = encoder->residual().empty() ? 0.0F : encoder->residual()[i];
      ASSERT_EQ(kept, kept_of(before[i], input[i], sent[i], lead)) << i;
    }
  }
}

// Each of three tensors by itself, in this order.
std::map<std::uint32_t, Bytes> payloads_in_order(const Codec& codec,
                                                 const std::vector<std::uint32_t>& order) {
  std::map<std::uint32_t, Bytes> payloads;
  for (const std::uint32_t tensor : order) {
    const Floats input = heavy_tailed(20001 + tensor, tensor);
    const auto encoder = codec.make_encoder(
        input.size(), {.seed = 9, .sender = 2, .tensor = tensor, .kind = TensorKind::kDense});
    encoder->encode(input, 7, payloads[tensor]);
  }
  return payloads;
}

TEST_P(EveryCodec, BytesDoNotDependOnTheOrderOfTensors) {
  EXPECT_EQ(payloads_in_order(*codec(), {0, 1, 2}), payloads_in_order(*codec(), {2, 0, 1}));
}

TEST_P(EveryCodec, BytesAreTheSameOnEveryTargetAndForEveryNumberOfThreads) {
  expect_same_everywhere(GetParam(), heavy_tailed(150001, 5));
}

// Long enough that every loop is cut.
TEST_P(EveryCodec, ThreadsThatShareALongTensorChangeNoBit) {
  const Floats input = heavy_tailed((std::size_t{1} << 20) + 150001, 6);
  ThreadPool pool(3);
  EXPECT_TRUE(run_codec(GetParam(), input, &pool, 1) == run_codec(GetParam(), input, nullptr, 0));
}

TEST_P(EveryCodec, ATensorThatIsNotFiniteTravelsRaw) { expect_raw_where_not_finite(GetParam()); }

TEST_P(EveryCodec, RejectsEveryPayloadThatIsCutShort) {
  const Floats input = heavy_tailed(301, 6);
  Bytes payload;
  const Encoded encoded = codec()->make_encoder(input.size())->encode(input, 0, payload);
  for (std::size_t bytes = 0; bytes < payload.size(); ++bytes) {
    const auto end = payload.begin() + static_cast<std::ptrdiff_t>(bytes);
    expect_rejected(encoded.codec, Bytes(payload.begin(), end), input.size());
  }
  payload.push_back(std::byte{0});
  expect_rejected(encoded.codec, payload, input.size());
}

// Where each value has a byte or more, the length tells.
TEST_P(EveryCodec, RevealsAWrongNumberOfValuesWhereItSaysSo) {
  const std::set<CodecId> reveal{CodecId::kFp32, CodecId::kFp16, CodecId::kBf16, CodecId::kInt8,
                                 CodecId::kTruncate};
  std::size_t passed = 0;
  for (std::size_t n = 0; n <= 40; ++n) {
    const Bytes payload = encoded(GetParam(), heavy_tailed(n, 4));
    for (std::size_t other = 0; other <= 80; ++other) {
      if (other == n) continue;
      const auto check = [&] { check_payload(codec()->id(), payload, other); };
      passed += fails_with(ErrorCode::kDataLoss, check) ? 0 : 1;
    }
  }
  EXPECT_EQ(passed == 0, reveal.contains(codec()->id())) << passed;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, testing::ValuesIn(texts()), test_name);

// Whatever keeps a residual, with the settings that make most of it.
std::vector<std::string> texts_with_residuals() {
  std::vector<std::string> found;
  for (const CodecDescription& codec : codec_descriptions()) {
    const auto has = [&](const std::string& key) {
      return std::ranges::any_of(codec.parameters, [&](const auto& p) { return p.key == key; });
    };
    if (has("ef")) found.push_back(codec.name + ":ef=on");
    if (!has("lead")) continue;
    for (const char* more : {":lead=1", ":lead=64", ":ef=21"}) found.push_back(codec.name + more);
  }
  for (const char* text :
       {"3lc:s=15", "3lc:mode=paper,s=1.99,lead=64", "3lc:mode=paper,s=1.99,ef=21",
        "terngrad:clip=1,ef=on", "qsgd:levels=200,bucket=3,ef=on", "adacomp:bin=3",
        "adacomp:bin=1,ef=21", "adacomp:factor=10", "local-selection:bin=3", "dryden:fraction=0.5",
        "dryden:fraction=0.5,ef=21", "topk:fraction=0.3,lead=64", "oland-raj:bits=1,ef=on"}) {
    found.emplace_back(text);
  }
  return found;
}

class EveryResidual : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, EveryResidual, testing::ValuesIn(texts_with_residuals()), test_name);

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Zeros, values up to the largest, and many of its size.
Floats extreme_values(std::size_t n, float largest, std::mt19937& random) {
  Floats values(n);
  for (float& value : values) {
    const double share = static_cast<double>(random() % 100'001) / 50'000 - 1;
    const auto kind = random() % 4;
    const double size = kind == 0 ? 0 : kind == 1 ? std::copysign(1, share) : share;
    value = static_cast<float>(size * double{largest});
  }
  return values;
}

// The last steps are ordinary: nothing that was extreme keeps them from being encoded.
TEST_P(EveryResidual, StaysFiniteWhateverIsFinite) {
  constexpr std::uint64_t kExtremeSteps = 12;
  std::mt19937 random(11);
  for (const float largest : {3.4e38F, 2e38F, 5e37F, 5e36F, 1e36F, 1e29F}) {
    for (int i = 0; i < 100; ++i) {
      const std::size_t n = 1 + random() % 80;
      const auto encoder = make_codec(GetParam())->make_encoder(n);
      for (std::uint64_t step = 0; step < kExtremeSteps + 2; ++step) {
        const Floats input = step < kExtremeSteps
                                 ? extreme_values(n, largest, random)
                                 : heavy_tailed(n, static_cast<unsigned>(random()));
        const auto before = bits_of(encoder->residual());
        Bytes payload;
        const Encoded made = encoder->encode(input, step, payload);
        ASSERT_TRUE(all_finite(encoder->residual())) << largest << ", step " << step;
        ASSERT_TRUE(all_finite(decoded(made.codec, payload, n))) << largest << ", step " << step;
        if (!made.not_finite) continue;
        ASSERT_LT(step, kExtremeSteps) << largest;
        ASSERT_EQ(bits_of(encoder->residual()), before);
        ASSERT_EQ(bits_of(decoded(made.codec, payload, n)), bits_of(input));
      }
    }
  }
}

TEST_P(EveryResidual, IsTheSameOnEveryTargetWhereItWouldOverflow) {
  using Steps = std::vector<std::pair<Bytes, std::vector<std::uint32_t>>>;
  const auto run = [](ThreadPool* pool) {
    std::mt19937 random(12);
    const auto encoder = make_codec(GetParam())->make_encoder(70'001);
    Steps steps;
    for (std::uint64_t step = 0; step < 4; ++step) {
      Bytes payload;
      encoder->encode(extreme_values(70'001, 1.2e38F, random), step, payload, pool);
      steps.emplace_back(payload, bits_of(encoder->residual()));
    }
    return steps;
  };
  const Steps expected = run(nullptr);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(run(nullptr) == expected) << target;
  }
  ThreadPool pool(3);
  EXPECT_TRUE(run(&pool) == expected);
}

// 1.99 and -1.99 + 2 * 1 become the mean of all.
TEST(Residual, ThatWouldOverflowIsAsItWas) {
  const float half = 0x1p127F;
  const Floats residual{-1.99F * half, 0, 0, 0};
  const Floats input{0.9975F * half, 0.99F * half, 0.99F * half, 0.99F * half};
  const auto encoder = make_codec("adacomp:bin=1,lead=2")->make_encoder(4);
  std::ranges::copy(residual, encoder->residual().begin());
  Bytes out;
  const Encoded made = encoder->encode(input, 0, out);
  EXPECT_EQ(made.codec, CodecId::kFp32);
  EXPECT_TRUE(made.not_finite);
  EXPECT_EQ(decoded(made.codec, out, 4), input);
  EXPECT_EQ(Floats(encoder->residual().begin(), encoder->residual().end()), residual);

  const auto strict = make_codec("adacomp:bin=1,lead=2,non-finite=reject")->make_encoder(4);
  std::ranges::copy(residual, strict->residual().begin());
  Bytes before = bytes_of({7});
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { strict->encode(input, 0, before); }));
  EXPECT_EQ(before, bytes_of({7}));
  EXPECT_EQ(Floats(strict->residual().begin(), strict->residual().end()), residual);
}

TEST(Residual, TakesBackNoMoreThanItHolds) {
  const auto encoder = make_codec("topk:fraction=1")->make_encoder(2);
  Bytes payload;
  const Encoded made = encoder->encode(Floats{1.5e38F, -1}, 0, payload);
  ASSERT_FALSE(made.not_finite);
  for (int i = 0; i < 3; ++i) encoder->give_back(made.codec, payload);
  EXPECT_EQ(encoder->residual()[0], kLargest);
}

}  // namespace
}  // namespace tersewire::test
