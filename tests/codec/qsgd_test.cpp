// Codec qsgd: bytes worked by hand, a plain encoder to compare with, and the statistics of its
// rounding. levels_test has the malformed payloads.
#include <gtest/gtest.h>

#include "../../src/kernels/random_words.h"
#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr std::size_t kLengths[] = {0,  1,  3,  4,  5,   8,   9,    16,   17,  31,
                                    40, 41, 63, 64, 128, 511, 1023, 1025, 5000};

TEST(Qsgd, RoundsWhatIsALevelToIt) {
  // The norm is 2, and 1 is the first of two levels; 3 + 1 * 8 + 3 * 64 + 1 * 512 = 0x2CB.
  const Bytes payload = encoded("qsgd:levels=2", {1, -1, 1, -1});
  EXPECT_EQ(payload, bytes_of({2, 2, 0x80, 4, 0, 0, 0, 0x40, 0xCB, 2}));
  EXPECT_EQ(decoded(CodecId::kQsgd, payload, 4), (Floats{1, -1, 1, -1}));
  // A value alone in its bucket is its norm.
  EXPECT_EQ(encoded("qsgd:bucket=1", {-4, 0.5F}),
            bytes_of({2, 7, 1, 0, 0, 0x80, 0x40, 0, 0, 0, 0x3F, 14 << 4 | 0}));
}

TEST(Qsgd, OfNothingAndOfZeros) {
  EXPECT_EQ(encoded("qsgd", {}), bytes_of({2, 7, 0x80, 4}));
  EXPECT_EQ(encoded("qsgd:bucket=0", {}), bytes_of({0, 7, 0, 0, 0, 0}));
  EXPECT_EQ(encoded("qsgd", {0.0F, -0.0F, 0.0F}),
            bytes_of({2, 7, 0x80, 4, 0, 0, 0, 0, 0x77, 0x07}));
}

// The specification, one value at a time; the sum is S for up to 16 values.
Floats decode_plainly(const Floats& t, float levels, std::size_t bucket, std::uint64_t seed) {
  std::vector<std::uint32_t> words(t.size());
  kernels::random_words({.seed = seed, .sender = 3, .tensor = 9, .step = 5}, 0, t.size(),
                        words.data());
  Floats out(t.size());
  for (std::size_t begin = 0; begin < t.size(); begin += bucket) {
    const std::size_t end = std::min(begin + bucket, t.size());
    std::array<double, 16> lanes{};
    float r = 0;
    for (std::size_t e = begin; e < end; ++e) lanes[e - begin] = double{t[e]} * double{t[e]};
    for (std::size_t h = 8; h > 0; h /= 2) {
      for (std::size_t j = 0; j < h; ++j) lanes[j] += lanes[j + h];
    }
    for (std::size_t e = begin; e < end; ++e) r = std::max(r, std::fabs(t[e]));
    const float limit = from_bits(0x7F7FFFFE);
    r = std::max(r, static_cast<float>(std::min(std::sqrt(lanes[0]), double{limit})));
    r = std::min(r, limit);
    const float factor = r > 0 ? std::ldexp(1.0F, std::clamp(-std::ilogb(r), -126, 127)) : 0;
    const float quotient = r > 0 ? levels / (r * factor) : 0;
    for (std::size_t e = begin; e < end; ++e) {
      const float y = std::fabs(t[e]) * factor * quotient;
      const float u = static_cast<float>(words[e] >> 8) * 0x1p-24F;
      const float level = std::min(std::floor(y) + (u < y - std::floor(y) ? 1.0F : 0.0F), levels);
      out[e] = level == 0 ? 0.0F : std::copysign(level, t[e]) * (r / levels);
    }
  }
  return out;
}

TEST(Qsgd, IsWhatAPlainEncoderMakes) {
  for (const unsigned levels : {1U, 2U, 7U, 8U, 127U, 1000U, 65535U}) {
    for (const std::size_t bucket : {1U, 5U, 16U}) {
      for (const std::size_t n : kLengths) {
        const auto seed = static_cast<unsigned>(n);
        const std::string text =
            "qsgd:levels=" + std::to_string(levels) + ",bucket=" + std::to_string(bucket);
        for (const Floats& input : {heavy_tailed(n, seed), odd_values(n, seed)}) {
          const Bytes payload = encoded(text, input, {.seed = seed, .sender = 3, .tensor = 9}, 5);
          const Floats expected = decode_plainly(input, static_cast<float>(levels), bucket, seed);
          EXPECT_EQ(bits_of(decoded(CodecId::kQsgd, payload, n)), bits_of(expected))
              << text << ", " << n << " values";
        }
      }
    }
  }
}

TEST(Qsgd, IsTheSameEverywhere) {
  for (const std::string text :
       {"qsgd", "qsgd:levels=1,bucket=7", "qsgd:levels=2", "qsgd:levels=127,bucket=1",
        "qsgd:levels=65535", "qsgd:levels=500,bucket=0"}) {
    for (const std::size_t n : kLengths) {
      expect_same_everywhere(text, odd_values(n, 5));
      expect_same_everywhere(text + (text == "qsgd" ? ":ef=on" : ",ef=on"), heavy_tailed(n, 4));
    }
  }
  for (const std::string text : {"qsgd:ef=on", "qsgd:bucket=0", "qsgd:bucket=70001,levels=1",
                                 "qsgd:levels=40,ef=on,bucket=4097"}) {
    expect_same_everywhere(text, heavy_tailed(300'001, 6));
  }
}

TEST(Qsgd, TakesTheShorterBody) {
  const Floats input = heavy_tailed(10'000, 1);
  const auto bits = [&](const std::string& text) {
    const std::size_t bytes = encoded(text, input).size();
    return static_cast<double>(8 * bytes) / 10'000;
  };
  EXPECT_NEAR(bits("qsgd:bucket=0,levels=1"), 1.6, 0.01);        // 40 levels a word
  EXPECT_NEAR(bits("qsgd:bucket=0,levels=7"), 4, 0.01);          // fields
  EXPECT_NEAR(bits("qsgd:bucket=0,levels=8"), 64.0 / 15, 0.01);  // 15 levels a word
  EXPECT_NEAR(bits("qsgd:bucket=0,levels=500"), 10, 0.01);       // fields: words take 64 / 6
}

TEST(Qsgd, DrawsBySeedSenderTensorAndStep) {
  const Floats input = heavy_tailed(1000, 2);
  const EncoderContext context{.seed = 1, .sender = 2, .tensor = 3};
  const Bytes payload = encoded("qsgd", input, context, 4);
  EXPECT_EQ(encoded("qsgd", input, context, 4), payload);
  EXPECT_NE(encoded("qsgd", input, {.seed = 5, .sender = 2, .tensor = 3}, 4), payload);
  EXPECT_NE(encoded("qsgd", input, {.seed = 1, .sender = 5, .tensor = 3}, 4), payload);
  EXPECT_NE(encoded("qsgd", input, {.seed = 1, .sender = 2, .tensor = 5}, 4), payload);
  EXPECT_NE(encoded("qsgd", input, context, 5), payload);
}

constexpr std::size_t kBucket = 512;

// How one value is rounded: up with probability `up`, and down a step with the rest.
struct Rounding {
  double step;
  double up;

  [[nodiscard]] double variance() const { return step * step * up * (1 - up); }
};

std::vector<Rounding> roundings_of(const Floats& input, double levels) {
  std::vector<Rounding> roundings;
  for (std::size_t begin = 0; begin < input.size(); begin += kBucket) {
    double squares = 0;
    for (std::size_t i = begin; i < begin + kBucket; ++i) squares += std::pow(input[i], 2);
    const double step = std::sqrt(squares) / levels;
    for (std::size_t i = begin; i < begin + kBucket; ++i) {
      const double level = std::fabs(double{input[i]}) / step;
      roundings.push_back({.step = step, .up = level - std::floor(level)});
    }
  }
  return roundings;
}

// The errors of many payloads, added up.
struct Errors {
  std::vector<double> sums;  // of each value
  double squares = 0;
};

Errors errors_of(const Floats& input, int levels, int steps) {
  const auto codec = make_codec("qsgd:levels=" + std::to_string(levels));
  const auto encoder = codec->make_encoder(input.size(), {.seed = 12});
  Errors errors{.sums = std::vector<double>(input.size())};
  for (int step = 0; step < steps; ++step) {
    Bytes out;
    encoder->encode(input, static_cast<std::uint64_t>(step), out);
    const Floats values = decoded(CodecId::kQsgd, out, input.size());
    for (std::size_t e = 0; e < input.size(); ++e) {
      const double error = double{values[e]} - double{input[e]};
      errors.sums[e] += error;
      errors.squares += error * error;
    }
  }
  return errors;
}

// The mean of many payloads is the tensor, in standard errors (z): for each value that is rounded
// either way often enough for a normal distribution z stays below 5.5, which one test in 25,000
// would not, and the mean of its square is near 1; z of all errors' sum stays below 5. The errors'
// squares are within QSGD's bound (Lemma 3.1).
TEST(Qsgd, IsUnbiased) {
  constexpr int kSteps = 4000;
  const Floats input = heavy_tailed(2 * kBucket, 3);
  for (const int levels : {1, 7, 20}) {
    SCOPED_TRACE(levels);
    const Errors errors = errors_of(input, levels, kSteps);
    const std::vector<Rounding> roundings = roundings_of(input, levels);
    std::vector<double> z;
    double sum = 0;
    double variance = 0;
    double norm_square = 0;
    for (std::size_t e = 0; e < input.size(); ++e) {
      sum += errors.sums[e];
      variance += roundings[e].variance() * kSteps;
      norm_square += std::pow(input[e], 2);
      if (std::min(roundings[e].up, 1 - roundings[e].up) * kSteps < 30) continue;
      z.push_back(errors.sums[e] / std::sqrt(roundings[e].variance() * kSteps));
    }
    ASSERT_GT(z.size(), 200U);
    double z_squares = 0;
    for (const double value : z) {
      EXPECT_LT(std::fabs(value), 5.5);
      z_squares += value * value;
    }
    EXPECT_NEAR(z_squares / static_cast<double>(z.size()), 1, 0.3);
    EXPECT_LT(std::fabs(sum), 5 * std::sqrt(variance));
    const double ratio = std::sqrt(double{kBucket}) / levels;
    EXPECT_LT(errors.squares / kSteps, std::min(ratio * ratio, ratio) * norm_square);
  }
}

TEST(Qsgd, KeepsTheLargestFloatFinite) {
  for (const char* text : {"qsgd:levels=127,ef=on", "qsgd:levels=127,bucket=0,ef=on"}) {
    const Floats input{kLargest, -kLargest, 1};
    const auto encoder = make_codec(text)->make_encoder(3);
    Bytes out;
    encoder->encode(input, 0, out);
    for (const float value : decoded(CodecId::kQsgd, out, 3)) EXPECT_TRUE(std::isfinite(value));
    for (const float value : encoder->residual()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Qsgd, TravelsRawWhereNotFinite) {
  expect_raw_where_not_finite("qsgd:ef=on");
  expect_raw_where_not_finite("qsgd:ef=on,bucket=0,levels=1");
}

TEST(Qsgd, SaysWhatItIs) {
  EXPECT_EQ(make_codec("qsgd")->text(), "qsgd:levels=7,bucket=512,ef=off,non-finite=send");
  for (const char* text : {"qsgd:levels=0", "qsgd:levels=65536", "qsgd:bucket=1099511627777"}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { make_codec(text); })) << text;
  }
  EXPECT_EQ(make_codec("qsgd")->max_encoded_bytes(513), 2052U);
  EXPECT_EQ(make_codec("qsgd:bucket=1,levels=65535")->max_encoded_bytes(100), 5U + 400 + 213);
}

TEST(Qsgd, AllocatesNothingOnceItsBufferHasGrown) {
  expect_no_allocations("qsgd:ef=on");
  expect_no_allocations("qsgd:levels=1,bucket=0");
}

}  // namespace
}  // namespace tersewire
