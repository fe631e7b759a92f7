// What holds for every codec there is, whatever it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

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

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, testing::ValuesIn(texts()), test_name);

}  // namespace
}  // namespace tersewire::test
