// What all codecs have in common: texts, doubles, and what a codec without a form of its own does.
#include "tersewire/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <random>

#include "../../src/codec/residual_encoder.h"
#include "tersewire/error.h"
#include "tersewire/setting_text.h"

namespace tersewire {
namespace {

void expect_refused(const std::function<void()>& task, const std::string& part) {
  try {
    task();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(SettingText, TakesWholeNumbersWithinTheirBounds) {
  SettingText text("x:a=8,b=18446744073709551615,c=2^-10", "codec");
  EXPECT_EQ(text.take_integer("a", 1, 1, 8), 8U);
  EXPECT_EQ(text.take_integer("b", 1, 0, std::numeric_limits<std::uint64_t>::max()),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(text.take_integer("absent", 3, 1, 8), 3U);
  EXPECT_EQ(text.take_word("c"), "2^-10");
  EXPECT_EQ(text.take_word("c"), "");
  text.finish({});
  for (const char* value : {"0", "9", "-1", "+1", "1.5", "1e1", "99999999999999999999", "8 "}) {
    expect_refused(
        [&] { SettingText("x:a=" + std::string(value), "codec").take_integer("a", 1, 1, 8); },
        "a must be a whole number from 1 to 8, not '" + std::string(value) + "'");
  }
}

TEST(SettingText, IsTheTextAgainWithWhatWasAddedAndWithoutWhatWasTaken) {
  SettingText text("x:bits=8,b=2", "codec");
  EXPECT_EQ(text.text(), "x:bits=8,b=2");
  EXPECT_EQ(text.set_default("s", "3"), "3");  // though "bits=" ends with "s="
  EXPECT_EQ(text.set_default("b", "4"), "2");
  EXPECT_EQ(text.text(), "x:bits=8,b=2,s=3");
  text.take_word("bits");
  EXPECT_EQ(text.text(), "x:b=2,s=3");
  EXPECT_EQ(SettingText("x", "codec").text(), "x");
}

TEST(Codec, UnknownParametersAreRefusedWithThoseThereAre) {
  expect_refused([] { make_codec("3lc:q=1"); },
                 "unknown parameter 'q'; 3lc has mode, s, block, layout, zre, lead, ef and "
                 "non-finite");
  expect_refused([] { make_codec("fp32:ef=on"); }, "fp32 has non-finite");
}

TEST(Codec, SaysWhetherItsEncodersKeepAResidualAndSendDifferences) {
  const auto says = [](const char* text, bool keeps, bool differences) {
    EXPECT_EQ(make_codec(text)->keeps_residual(), keeps) << text;
    EXPECT_EQ(make_codec(text)->sends_differences(), differences) << text;
  };
  says("3lc", true, false);
  says("3lc:ef=off", false, false);
  says("3lc:ef=21", true, true);
  says("int8:ef=on", true, false);
  says("fp32", false, false);
}

TEST(Codec, EveryListedDefaultIsTheDefault) {
  for (const CodecDescription& codec : codec_descriptions()) {
    if (codec.name == "3lc") continue;  // what it has depends on its mode, see below
    std::string text = codec.name;
    for (const CodecParameter& parameter : codec.parameters) {
      text += (text == codec.name ? ":" : ",") + parameter.key + "=" + parameter.value;
    }
    EXPECT_EQ(make_codec(text)->text(), make_codec(codec.name)->text());
  }
}

TEST(Codec, DefaultsOf3lcDependOnItsMode) {
  EXPECT_EQ(make_codec("3lc")->text(),
            "3lc:mode=blocks,s=1.25,block=256,lead=2,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("3lc:s=3")->text(),
            "3lc:mode=blocks,s=3,block=256,lead=5.5,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("3lc:ef=off")->text(),
            "3lc:mode=blocks,s=1.25,block=256,lead=1,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("3lc:mode=paper")->text(),
            "3lc:mode=paper,s=1,layout=neighbours,zre=on,lead=1,ef=on,non-finite=send");
  // What a codec says of itself makes it again, however large its lead.
  for (const char* text : {"3lc:s=15.9999", "3lc:s=9", "3lc:block=4096,lead=64"}) {
    EXPECT_EQ(make_codec(make_codec(text)->text())->text(), make_codec(text)->text());
  }
}

TEST(Codec, WhatIsOfTheOtherModeIsRefused) {
  expect_refused([] { make_codec("3lc:zre=on"); }, "zre must be omitted, or given with mode=paper");
  expect_refused([] { make_codec("3lc:layout=partitions"); }, "layout must be omitted");
  expect_refused([] { make_codec("3lc:mode=paper,block=64"); },
                 "block must be omitted with mode=paper");
  expect_refused([] { make_codec("3lc:mode=paper,s=2"); }, "s must be a number from 1 to below 2");
  expect_refused([] { make_codec("3lc:mode=plain"); }, "mode must be");
  expect_refused([] { make_codec("3lc:s=16"); }, "s must be a number from 1 to below 16");
  for (const char* block : {"0", "32", "65", "4160"}) {
    expect_refused([&] { make_codec(std::string("3lc:block=") + block); }, "block must be");
  }
}

TEST(Codec, ALeadNeedsAResidual) {
  for (const char* lead : {"0.5", "65", "nan", "inf", "-1", "two"}) {
    expect_refused([&] { make_codec(std::string("topk:lead=") + lead); }, "lead must be");
  }
  expect_refused([] { make_codec("topk:lead=2,ef=off"); }, "lead must be 1 with ef=off");
  EXPECT_EQ(make_codec("topk:lead=1,ef=off")->text(), make_codec("topk:ef=off")->text());
  // Codecs that keep a residual only when told to have none.
  for (const CodecDescription& codec : codec_descriptions()) {
    const auto is = [](const char* key) {
      return [=](const CodecParameter& parameter) { return parameter.key == key; };
    };
    const auto ef = std::ranges::find_if(codec.parameters, is("ef"));
    const bool keeps = ef != codec.parameters.end() && ef->value == "on";
    EXPECT_EQ(std::ranges::any_of(codec.parameters, is("lead")), keeps) << codec.name;
  }
}

TEST(Encoder, DoublesAreRoundedToFloats) {
  const std::vector<double> input{0.1, -1e-300, 2.5};
  const std::vector<float> rounded{0.1F, -0.0F, 2.5F};
  for (const char* text : {"fp32", "3lc"}) {
    const auto codec = make_codec(text);
    Bytes from_doubles;
    Bytes from_floats;
    codec->make_encoder(3)->encode_f64(input, 0, from_doubles);
    codec->make_encoder(3)->encode(rounded, 0, from_floats);
    EXPECT_EQ(from_doubles, from_floats);
    std::vector<double> decoded(3);
    std::vector<float> expected(3);
    decode_f64(codec->id(), from_doubles, decoded);
    decode(codec->id(), from_floats, expected);
    EXPECT_EQ(decoded, std::vector<double>(expected.begin(), expected.end()));
  }
}

TEST(Encoder, DoublesBeyondFloatsAreRefused) {
  const auto encoder = make_codec("3lc")->make_encoder(2);
  Bytes out;
  expect_refused(
      [&] {
        encoder->encode_f64(std::vector<double>{1, -1e39}, 0, out);
      },
      "value 1 is -1e+39, beyond");
  EXPECT_TRUE(out.empty());
  const std::vector<double> infinite{1, std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(encoder->encode_f64(infinite, 0, out).not_finite);
}

TEST(Encoder, MostCodecsHaveNoScalersToShare) {
  const auto encoder = make_codec("3lc")->make_encoder(2);
  const std::vector<float> input{1, 2};
  EXPECT_TRUE(encoder->local_scalers(input).empty());
  Bytes out;
  expect_refused([&] { encoder->encode_under({}, input, 0, out); }, "no scalers");
}

TEST(Encoder, SendersAreNumberedBelow16Million) {
  const auto codec = make_codec("3lc");
  EXPECT_EQ(codec->make_encoder(1, {.sender = (1U << 24) - 1})->elems(), 1U);
  expect_refused([&] { static_cast<void>(codec->make_encoder(1, {.sender = 1U << 24})); },
                 "sender number 16777216");
}

double gain(const char* text) { return make_codec(text)->adaptive_rate_gain(); }

TEST(AdaptiveRateGain, IsHalfwayToTheLeadOf3lc) {
  EXPECT_EQ(gain("3lc"), 1.5);
  EXPECT_EQ(gain("3lc:s=1.75"), 2);
  EXPECT_EQ(gain("3lc:s=1.75,lead=5"), 3);
  for (const char* without : {"3lc:lead=1", "3lc:ef=21", "3lc:ef=off", "3lc:mode=paper", "fp32",
                              "int8:ef=on", "topk", "adacomp"}) {
    EXPECT_EQ(gain(without), 1) << without;
  }
}

TEST(AdaptiveRateGain, IsWhatTernaryValuesMakeOfNoise) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> noise(std::size_t{1} << 18);
  std::ranges::generate(noise, [&] { return normal(random); });
  const auto mean_square = [&](const std::vector<float>& values) {
    return std::inner_product(values.begin(), values.end(), values.begin(), 0.0) /
           static_cast<double>(values.size());
  };
  for (const char* text : {"terngrad", "terngrad:clip=3,pack=2bit", "stoch3"}) {
    const auto codec = make_codec(text);
    Bytes payload;
    const Encoded sent = codec->make_encoder(noise.size())->encode(noise, 0, payload);
    std::vector<float> rounded(noise.size());
    decode(sent.codec, payload, rounded);
    EXPECT_NEAR(codec->adaptive_rate_gain(), std::sqrt(mean_square(rounded) / mean_square(noise)),
                0.02)
        << text;
  }
  EXPECT_EQ(gain("terngrad:clip=off"), 2);
  for (const char* without : {"terngrad:clip=1", "terngrad:ef=on", "stoch3:ef=on", "qsgd"}) {
    EXPECT_EQ(gain(without), 1) << without;
  }
}

TEST(AdaptivePullCodec, KeepsNoResidualWhereItsCodecTeachesMoreWithoutOne) {
  const auto expect = [](const std::string& push, const std::string& pull) {
    EXPECT_EQ(adaptive_pull_codec(push), pull);
    EXPECT_NO_THROW(make_codec(pull)) << pull;
  };
  expect("3lc", "3lc:ef=off");
  expect("3lc:s=1.75", "3lc:s=1.75,ef=off");
  EXPECT_FALSE(make_codec(adaptive_pull_codec("3lc"))->keeps_residual());
  // Means of differences want it, and the paper's form would send next to nothing without it.
  for (const char* same :
       {"3lc:ef=on", "3lc:ef=21,s=1.6", "3lc:ef=off", "3lc:lead=1.5", "3lc:mode=paper", "topk",
        "adacomp:bin=20", "mqe1bit", "int8:ef=on", "terngrad", "fp32"}) {
    expect(same, same);
  }
  expect_refused([] { adaptive_pull_codec("3lc:s"); }, "3lc:s");
}

// Surveys more than the maximum, and fails once it has written.
class FailingEncoder final : public ResidualEncoder {
 public:
  FailingEncoder() : ResidualEncoder(2, {.seed = 7, .kind = TensorKind::kConv}, EncoderOptions()) {}

  float first = 0;
  EncoderContext seen;
  std::uint64_t step = 0;

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override {
    first = input[0];
    return ResidualEncoder::survey(input, residual, pool);
  }
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    seen = context();
    step = call.step;
    EXPECT_EQ(call.largest, 2.0F);
    EXPECT_EQ(call.elems, 2U);
    EXPECT_NE(call.residual, nullptr);
    out.resize(out.size() + 100);
    throw std::bad_alloc();
  }
};

TEST(ResidualEncoder, GivesTheCodecWhatItNeedsAndTakesBackWhatAFailureLeft) {
  FailingEncoder encoder;
  Bytes out(3, std::byte{9});
  EXPECT_THROW(encoder.encode(std::vector<float>{1, -2}, 42, out, nullptr), std::bad_alloc);
  EXPECT_EQ(out, Bytes(3, std::byte{9}));
  EXPECT_EQ(encoder.first, 1.0F);
  EXPECT_EQ(encoder.step, 42U);
  EXPECT_EQ(encoder.seen.seed, 7U);
  EXPECT_EQ(encoder.seen.kind, TensorKind::kConv);
}

}  // namespace
}  // namespace tersewire
