// Codec oland-raj: payloads worked by hand, the number of bits, error bounds, doubles, and what
// must never happen.
#include <cmath>

#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using test::bytes_of;
using test::decoded;
using test::encoded;
using test::fails_with;

using Doubles = std::vector<double>;

constexpr double kLargestDouble = std::numeric_limits<double>::max();

Bytes encoded_f64(const std::string& text, const Doubles& input) {
  Bytes out;
  const auto encoder = make_codec(text)->make_encoder(input.size());
  EXPECT_EQ(encoder->encode_f64(input, 0, out).codec, CodecId::kOlandRaj);
  return out;
}

Doubles decoded_f64(const Bytes& payload, std::size_t elems) {
  Doubles out(elems, 42.0);
  decode_f64(CodecId::kOlandRaj, payload, out);
  return out;
}

std::string parameter(const Bytes& payload, const std::string& key) {
  for (const CodecParameter& found : payload_parameters(CodecId::kOlandRaj, payload)) {
    if (found.key == key) return found.value;
  }
  return "none";
}

Floats normal(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  Floats values(n);
  for (float& value : values) value = draw(random);
  return values;
}

// --- Known answers

TEST(OlandRaj, ConstantsByHand) {
  const std::vector<int> zero{0, 0, 0, 0, 0};
  EXPECT_EQ(encoded("oland-raj", Floats{}), bytes_of(zero));
  EXPECT_EQ(encoded("oland-raj", Floats(9, -0.0F)), bytes_of(zero));
  const Bytes payload = encoded("oland-raj", Floats{3, 3});
  EXPECT_EQ(payload, bytes_of({0, 0, 0, 0x40, 0x40}));
  EXPECT_EQ(decoded(CodecId::kOlandRaj, payload, 3), (Floats{3, 3, 3}));
  EXPECT_EQ(parameter(payload, "body"), "constant");
  EXPECT_EQ(encoded_f64("oland-raj", Doubles{-2}), bytes_of({4, 0, 0, 0, 0, 0, 0, 0, 0xC0}));
}

TEST(OlandRaj, FixedIndicesByHand) {
  // Four bins of width 1: indices 0, 1, 2, and 4 that becomes 3: 0 + 4 + 32 + 192 = 0xE4. A fifth
  // value of 3.5 begins another byte.
  const Bytes payload = encoded("oland-raj:bits=2", Floats{0, 1, 2, 4, 3.5F});
  EXPECT_EQ(payload, bytes_of({1, 0, 0, 0, 0, 0, 0, 0x80, 0x40, 2, 0xE4, 3}));
  EXPECT_EQ(decoded(CodecId::kOlandRaj, payload, 5), (Floats{0.5F, 1.5F, 2.5F, 3.5F, 3.5F}));
  Floats sum{10, 10, 10, 10, 10};
  decode_add(CodecId::kOlandRaj, payload, 2, sum);
  EXPECT_EQ(sum, (Floats{11, 13, 15, 17, 17}));
  EXPECT_EQ(parameter(payload, "max"), "4");
}

TEST(OlandRaj, HuffmanCodesByHand) {
  // Of four bins only the first (code 0) and the last (code 1) are used: lengths 1, 0, 0, 1. Each
  // stream has 16 bits; the values of 4 are bit 0 of stream 0, 1 of stream 1 and 15 of stream 3.
  Floats input(64, 0.0F);
  input[0] = input[5] = input[63] = 4;
  const Bytes payload = encoded("oland-raj:bits=2", input);
  EXPECT_EQ(payload, bytes_of({2, 0, 0, 0, 0,      0, 0, 0x80, 0x40, 2, 1, 0x20, 1,
                               2, 2, 2, 2, /**/ 1, 0, 2, 0,    0,    0, 0, 0x80}));
  Floats expected(64, 0.5F);
  expected[0] = expected[5] = expected[63] = 3.5F;
  EXPECT_EQ(decoded(CodecId::kOlandRaj, payload, 64), expected);
  EXPECT_EQ(parameter(payload, "body"), "huffman");
}

TEST(OlandRaj, ResidualByHand) {
  const auto encoder = make_codec("oland-raj:bits=1,ef=on")->make_encoder(3);
  Bytes out;
  encoder->encode(Floats{0, 1, 4}, 0, out);
  // Bins 0 to 2 and 2 to 4: 1, 1 and 3 are sent.
  EXPECT_EQ(out, bytes_of({1, 0, 0, 0, 0, 0, 0, 0x80, 0x40, 1, 4}));
  EXPECT_EQ(test::bits_of(encoder->residual()), test::bits_of(Floats{-1, 0, 1}));
  encoder->give_back(CodecId::kOlandRaj, out);
  EXPECT_EQ(test::bits_of(encoder->residual()), test::bits_of(Floats{0, 1, 4}));
}

// --- How many bits

TEST(OlandRaj, BitsFollowTheEntropy) {
  Floats uniform(4096);
  for (std::size_t e = 0; e < uniform.size(); ++e) uniform[e] = static_cast<float>(e % 16);
  Floats two(1000, 0.0F);
  std::fill_n(two.begin(), 500, 1.0F);
  Floats quarter(1000, 0.0F);  // H = 0.811
  std::fill_n(quarter.begin(), 250, 1.0F);
  Floats outlier(4096, 0.0F);  // H = 0.003
  outlier[7] = 1;
  struct Case {
    const Floats* values;
    const char* c;
    const char* bits;
  };
  const std::vector<Case> cases{
      {&uniform, "6", "10"},  {&uniform, "0", "4"}, {&uniform, "12", "16"}, {&uniform, "5.5", "10"},
      {&two, "6", "7"},       {&two, "0", "1"},     {&quarter, "6", "7"},   {&quarter, "6.1", "7"},
      {&quarter, "6.2", "8"}, {&outlier, "6", "7"}, {&outlier, "0", "1"}};
  for (const Case& c : cases) {
    EXPECT_EQ(parameter(encoded("oland-raj:c=" + std::string(c.c), *c.values), "bits"), c.bits);
  }
}

TEST(OlandRaj, LongTensorsAreSampled) {
  // Three values as often as each other: H = 1.585, near enough to it in any sample of 3 %.
  Floats three(100'000);
  for (std::size_t e = 0; e < three.size(); ++e) three[e] = static_cast<float>(e % 3);
  EXPECT_EQ(parameter(encoded("oland-raj", three), "bits"), "8");
  three.resize(4097);
  EXPECT_EQ(parameter(encoded("oland-raj:c=5", three), "bits"), "7");
  // Which elements are drawn depends on the seed, the sender, the tensor and the step: where the
  // entropy is all but a whole number, so does the result.
  Floats values(5000, 0.0F);
  std::fill_n(values.begin(), 2500, 1.0F);
  values[4000] = 2;
  values[0] = -1;
  std::array<int, 2> found{};
  const auto codec = make_codec("oland-raj");
  for (std::uint64_t step = 0; step < 64; ++step) {
    Bytes out;
    codec->make_encoder(5000)->encode(values, step, out);
    ++found.at(parameter(out, "bits") == "7" ? 0 : 1);
  }
  EXPECT_GT(found[0], 0);
  EXPECT_GT(found[1], 0);
}

TEST(OlandRaj, BitsFollowTheGradient) {
  const Floats weights = normal(100, 1);
  const auto encoder = make_codec("oland-raj:bits-from=gradient,c=5")->make_encoder(100);
  Bytes out = bytes_of({1});
  EXPECT_TRUE(
      fails_with(ErrorCode::kFailedPrecondition, [&] { encoder->encode(weights, 0, out); }));
  EXPECT_EQ(out, bytes_of({1}));
  const auto bits = [&] {
    out.clear();
    encoder->encode(weights, 0, out);
    return parameter(out, "bits");
  };
  // N = log2(G + 1) + c.
  const std::vector<std::pair<float, const char*>> cases{{0, "5"},  {1e-3F, "6"}, {1, "6"},
                                                         {-3, "7"}, {3.1F, "8"},  {1e30F, "16"}};
  for (const auto& [gradient, expected] : cases) {
    encoder->observe_gradient(Floats(100, gradient));
    EXPECT_EQ(bits(), expected) << gradient;
  }
  encoder->observe_gradient(Floats(100, 1.0F));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                         [&] { encoder->observe_gradient(Floats(99, 1.0F)); }));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                         [&] { encoder->observe_gradient(Floats(100, test::kInfinity)); }));
  EXPECT_EQ(bits(), "6");                                            // the last good one stands
  make_codec("fp32")->make_encoder(1)->observe_gradient(Floats(2));  // of no use to others
}

// --- Error bound

TEST(OlandRaj, NoValueIsFurtherThanHalfABinAway) {
  for (unsigned bits = 1; bits <= 16; ++bits) {
    for (const std::size_t n : {2U, 3U, 100U, 5000U}) {
      const Floats input = normal(n, bits);
      const Floats out =
          decoded(CodecId::kOlandRaj, encoded("oland-raj:bits=" + std::to_string(bits), input), n);
      const auto [least, greatest] = std::ranges::minmax(input);
      const double half = std::ldexp(double{greatest} - least, -static_cast<int>(bits) - 1);
      for (std::size_t e = 0; e < n; ++e) {
        const double rounding = std::fabs(out[e]) * 0x1p-24;
        ASSERT_LE(std::fabs(double{out[e]} - input[e]), half * (1 + 1e-9) + rounding);
      }
    }
  }
}

// --- The same everywhere

TEST(OlandRaj, EveryTargetThreadCountAndAlignmentGivesTheSameBytes) {
  for (const char* text : {"oland-raj", "oland-raj:ef=on", "oland-raj:bits=3,ef=on",
                           "oland-raj:bits=16,ef=on", "oland-raj:c=0"}) {
    for (const std::size_t n : {0U, 1U, 2U, 3U, 4U, 7U, 8U, 9U, 15U, 17U, 33U, 1000U, 5000U}) {
      test::expect_same_everywhere(text, test::heavy_tailed(n, 1));
      if (!std::string(text).ends_with("ef=on")) {  // with it, the second step's sums overflow
        test::expect_same_everywhere(text, test::odd_values(n, 2));
      }
    }
  }
  // Parts for three threads; of the last too, that some streams end within a byte.
  for (const char* text : {"oland-raj:ef=on", "oland-raj:bits=12,ef=on", "oland-raj:bits=16"}) {
    test::expect_same_everywhere(text, test::heavy_tailed(400'003, 3));
    test::expect_same_everywhere(text, test::heavy_tailed((1U << 18) + 1, 4));
  }
  Floats huge = test::heavy_tailed(3000, 5);
  huge[1234] = test::kLargest / 4;
  test::expect_same_everywhere("oland-raj:ef=on", huge);
  test::expect_same_everywhere("oland-raj:ef=on", Floats(3000, -1.5F));
  test::expect_same_everywhere("oland-raj", Floats(3000, -0.0F));
}

TEST(OlandRaj, DoublesAreTheSameEverywhere) {
  Doubles input(300'001);
  const Floats values = normal(input.size(), 9);
  for (std::size_t e = 0; e < input.size(); ++e) input[e] = values[e] * 1e-100;
  const auto run = [&](ThreadPool* pool) {
    const auto encoder = make_codec("oland-raj:ef=on")->make_encoder(input.size());
    Bytes out;
    encoder->encode_f64(input, 3, out, pool);
    encoder->encode_f64(input, 4, out, pool);
    return std::pair(out, test::bits_of(encoder->residual()));
  };
  const auto expected = run(nullptr);
  for (const std::string& target : simd_targets()) {
    const test::ForcedTarget forced(target);
    EXPECT_TRUE(run(nullptr) == expected) << target;
  }
  ThreadPool pool(3);
  EXPECT_TRUE(run(&pool) == expected);
}

// --- Doubles

TEST(OlandRaj, DoublesKeepTheirDigits) {
  const Doubles input{1e-300, 3e-300, 1.7e-300, 2.2e-300};
  const Bytes payload = encoded_f64("oland-raj:bits=16", input);
  EXPECT_EQ(payload.size(), 26U);
  EXPECT_EQ(parameter(payload, "element"), "f64");
  const Doubles out = decoded_f64(payload, 4);
  const double range = 3e-300 - 1e-300;
  for (std::size_t e = 0; e < 4; ++e) {
    const double index = std::min(std::floor((input[e] - 1e-300) * (65536 / range)), 65535.0);
    EXPECT_EQ(out[e], 1e-300 + range * ((index + 0.5) / 65536));
  }
  EXPECT_EQ(decoded(CodecId::kOlandRaj, payload, 4), Floats(4, 0.0F));
  // A payload of floats gives floats.
  const Floats floats = normal(50, 2);
  const Bytes narrow = encoded("oland-raj", floats);
  const Floats values = decoded(CodecId::kOlandRaj, narrow, 50);
  EXPECT_EQ(decoded_f64(narrow, 50), Doubles(values.begin(), values.end()));
}

TEST(OlandRaj, DoublesBeyondFloatsDecodeToTheLargestFloat) {
  const Bytes payload = encoded_f64("oland-raj:bits=2", Doubles{-1e300, 1e300, 0});
  EXPECT_EQ(decoded(CodecId::kOlandRaj, payload, 3),
            (Floats{-test::kLargest, test::kLargest, test::kLargest}));
  EXPECT_EQ(decoded(CodecId::kOlandRaj, encoded_f64("oland-raj", Doubles{-1e300}), 1),
            Floats{-test::kLargest});
  Floats sum{1};
  decode_add(CodecId::kOlandRaj, encoded_f64("oland-raj", Doubles{1e300}), 0.5F, sum);
  EXPECT_EQ(sum, Floats{1 + 0.5F * test::kLargest});
}

TEST(OlandRaj, DoublesThatHaveNoScale) {
  Bytes out;
  const auto encoder = make_codec("oland-raj:ef=on")->make_encoder(2);
  const auto refused = [&](const Doubles& input) {
    return fails_with(ErrorCode::kInvalidArgument, [&] { encoder->encode_f64(input, 0, out); });
  };
  EXPECT_TRUE(refused({-kLargestDouble, kLargestDouble}));
  EXPECT_TRUE(refused({0, 1e60}));  // 2^7 bins leave more than a float holds
  EXPECT_TRUE(refused({0, 1, 2}));
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(test::bits_of(encoder->residual()), test::bits_of(Floats{0, 0}));
  EXPECT_EQ(parameter(encoded_f64("oland-raj", Doubles{0, 1e60}), "body"), "fixed");
  // Narrower than 2^-1000: one value.
  EXPECT_EQ(parameter(encoded_f64("oland-raj", Doubles{1e-310, 3e-310}), "body"), "constant");
  const double nan = std::nan("");
  const Encoded raw = encoder->encode_f64(Doubles{nan, 1}, 0, out);
  EXPECT_TRUE(raw.not_finite && raw.codec == CodecId::kFp32 && out.size() == 8);
}

TEST(OlandRaj, TheResidualOfDoublesIsAFloat) {
  const Doubles input{0, 0.1, 1};
  const auto encoder = make_codec("oland-raj:bits=3,ef=on")->make_encoder(3);
  Floats residual(3, 0.0F);
  for (std::uint64_t step = 0; step < 3; ++step) {
    Bytes out;
    encoder->encode_f64(input, step, out);
    const Doubles sent = decoded_f64(out, 3);
    for (std::size_t e = 0; e < 3; ++e) {
      residual[e] = static_cast<float>(input[e] + residual[e] - sent[e]);
    }
    EXPECT_EQ(test::bits_of(encoder->residual()), test::bits_of(residual));
  }
}

// --- What is not finite, and what is malformed

TEST(OlandRaj, WhatIsNotFiniteTravelsAsItIs) {
  test::expect_raw_where_not_finite("oland-raj");
  test::expect_raw_where_not_finite("oland-raj:ef=on");
}

void expect_rejected(const std::vector<int>& payload, std::size_t elems) {
  SCOPED_TRACE(testing::PrintToString(payload));
  test::expect_rejected(CodecId::kOlandRaj, bytes_of(payload), elems);
}

TEST(OlandRaj, TruncatedAndLengthenedPayloadsAreRejected) {
  for (const char* text : {"oland-raj:bits=4", "oland-raj:bits=9"}) {
    Bytes payload = encoded(text, test::heavy_tailed(997, 4));
    for (std::size_t n = 0; n < payload.size(); ++n) {
      const Bytes cut(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n));
      test::expect_rejected(CodecId::kOlandRaj, cut, 997);
    }
    for (const std::size_t n : {900U, 1100U}) {
      test::expect_rejected(CodecId::kOlandRaj, payload, n);
    }
    payload.push_back(std::byte{0});
    test::expect_rejected(CodecId::kOlandRaj, payload, 997);
  }
}

TEST(OlandRaj, MalformedHeadsAreRejected) {
  for (int layout = 3; layout < 256; ++layout) {
    if (layout < 4 || layout > 6) expect_rejected({layout, 0, 0, 0, 0}, 2);
  }
  expect_rejected({0, 0, 0, 0x80, 0x3F}, 0);  // no values, and not 0
  expect_rejected({1, 0, 0, 0, 0, 0, 0, 0x80, 0x3F, 2}, 0);
  expect_rejected({0, 0, 0, 0x80, 0x7F}, 1);  // infinity
  expect_rejected({0, 0, 0, 0xC0, 0x7F}, 1);  // NaN
  const auto fixed = [](std::vector<int> extremes, int bits, std::vector<int> body) {
    std::vector<int> payload{1};
    payload.insert(payload.end(), extremes.begin(), extremes.end());
    payload.push_back(bits);
    payload.insert(payload.end(), body.begin(), body.end());
    return payload;
  };
  const std::vector<int> good{0, 0, 0, 0, 0, 0, 0x80, 0x3F};  // 0 to 1
  EXPECT_NO_THROW(check_payload(CodecId::kOlandRaj, bytes_of(fixed(good, 2, {0x0F})), 2));
  expect_rejected(fixed(good, 2, {0x1F}), 2);  // a bit behind the last index
  expect_rejected(fixed(good, 0, {}), 2);
  expect_rejected(fixed(good, 17, {0, 0, 0, 0, 0}), 2);
  expect_rejected(fixed({0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F}, 2, {0}), 2);  // max = min
  expect_rejected(fixed({0, 0, 0x80, 0x3F, 0, 0, 0, 0}, 2, {0}), 2);        // max < min
  expect_rejected(fixed({0, 0, 0, 0, 0, 0, 0x80, 0x7F}, 2, {0}), 2);
  expect_rejected(fixed({0, 0, 0, 0, 0, 0, 0xC0, 0x7F}, 2, {0}), 2);
  // -1.8e308 to 1.8e308: finite, but not their difference.
  expect_rejected({5, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xEF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                   0xFF, 0xEF, 0x7F, 2, 0},
                  2);
}

TEST(OlandRaj, MalformedStreamsAreRejected) {
  const auto huffman = [](std::vector<int> rest) {
    std::vector<int> payload{2, 0, 0, 0, 0, 0, 0, 0x80, 0x3F, 2};
    payload.insert(payload.end(), rest.begin(), rest.end());
    return payload;
  };
  // Codes 0, 10, 110 and 111; five values: two in stream 0, one in the others.
  EXPECT_NO_THROW(check_payload(CodecId::kOlandRaj,
                                bytes_of(huffman({1, 2, 0x23, 1, 1, 1, 1, 0x3F, 0, 1, 3})), 5));
  expect_rejected(huffman({1, 2, 0x23, 1, 1, 1, 1, 0x7F, 0, 1, 3}), 5);        // a bit too many
  expect_rejected(huffman({1, 2, 0x23, 1, 1, 1, 1, 0x3F, 2, 1, 3}), 5);        // likewise
  expect_rejected(huffman({1, 2, 0x23, 2, 1, 1, 1, 0x3F, 0, 0, 1, 3}), 5);     // a byte too many
  expect_rejected(huffman({1, 2, 0x23, 1, 0, 1, 1, 0x3F, 1, 3}), 5);           // a byte too few
  expect_rejected(huffman({1, 2, 0x23, 1, 1, 1, 0x81, 0, 0x3F, 0, 1, 3}), 5);  // a long varint
  expect_rejected(huffman({1, 2, 0x23, 1, 1, 1, 2, 0x3F, 0, 1, 3}), 5);
  expect_rejected(huffman({1, 2, 0x23, 1, 1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x3F, 0, 1, 3}), 5);
  expect_rejected(huffman({1, 2, 0x22, 1, 1, 1, 1, 0x3F, 0, 1, 3}), 5);  // no complete code
  // 16 values of three bits in a stream of 5 bytes: the last code goes past the end.
  expect_rejected(huffman({1, 2, 0x23, 5, 2, 2, 2, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0}), 64);
  // A tensor that nobody has memory for costs no more than its payload is long.
  const Bytes short_payload = bytes_of(huffman({1, 2, 0x23, 1, 1, 1, 1, 0x3F, 0, 1, 3}));
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss, [&] {
    check_payload(CodecId::kOlandRaj, short_payload, std::size_t{1} << 40);
  }));
}

// --- Texts, bounds, memory

TEST(OlandRaj, Texts) {
  EXPECT_EQ(make_codec("oland-raj")->text(),
            "oland-raj:c=6,bits-from=entropy,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("oland-raj:bits=8,ef=on")->text(), "oland-raj:bits=8,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("oland-raj:c=0.5,bits-from=gradient")->text(),
            "oland-raj:c=0.5,bits-from=gradient,ef=off,non-finite=send");
  for (const char* text : {"bits=0", "bits=17", "bits=x", "bits=8,c=6", "bits=8,bits-from=gradient",
                           "c=-1", "c=12.5", "c=nan", "c=", "bits-from=weights"}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] {
      make_codec("oland-raj:" + std::string(text));
    })) << text;
  }
}

TEST(OlandRaj, PayloadsAreNeverLongerThanTheirBound) {
  for (const char* text : {"oland-raj:bits=1", "oland-raj:c=3.5", "oland-raj:bits=16"}) {
    const auto codec = make_codec(text);
    for (std::size_t n = 0; n < 70; ++n) {
      Doubles spread(n);
      for (std::size_t e = 0; e < n; ++e) spread[e] = static_cast<double>(e);
      EXPECT_LE(encoded_f64(text, spread).size(), codec->max_encoded_bytes(n));
      EXPECT_LE(4 * n, codec->max_encoded_bytes(n));
    }
  }
  // Two bytes a value, head and all, against the raw form's four.
  EXPECT_EQ(make_codec("oland-raj:bits=16")->max_encoded_bytes(5), 28U);
  EXPECT_EQ(make_codec("oland-raj:bits=16")->max_encoded_bytes(1000), 4000U);
}

TEST(OlandRaj, StepsAfterTheFirstEncodeWithoutAllocating) {
  const Floats input = test::heavy_tailed(300'001, 6);
  ThreadPool pool(2);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const auto encoder = make_codec("oland-raj:ef=on,bits=9")->make_encoder(input.size());
    Bytes out;
    out.reserve(make_codec("oland-raj")->max_encoded_bytes(input.size()));
    encoder->encode(input, 0, out, threads);
    const std::size_t before = test::allocations;
    for (std::uint64_t step = 1; step < 4; ++step) {
      out.clear();
      encoder->encode(input, step, out, threads);
    }
    EXPECT_EQ(test::allocations, before);
  }
}

}  // namespace
}  // namespace tersewire
