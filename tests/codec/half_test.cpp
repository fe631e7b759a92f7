// Codecs fp16 and bf16: every half, every rounding boundary, on every SIMD target.
#include <gtest/gtest.h>

#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

// A format by its definition: `exponent_bits` with the usual bias, the rest mantissa.
struct Format {
  CodecId codec;
  const char* name;
  int mantissa_bits;
  int exponent_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] std::uint32_t infinity() const {
    return ((1U << exponent_bits) - 1) << mantissa_bits;
  }

  // What 16 bits mean.
  [[nodiscard]] double value(std::uint32_t bits) const {
    const int exponent = static_cast<int>((bits & 0x7FFF) >> mantissa_bits);
    const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1));
    const double one = std::ldexp(1.0, mantissa_bits);
    const double significand = exponent == 0 ? mantissa : mantissa + one;
    const double magnitude =
        (bits & 0x7FFF) >= infinity()
            ? (mantissa == 0 ? HUGE_VAL : std::nan(""))
            : std::ldexp(significand, std::max(exponent, 1) - bias() - mantissa_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }

  // The nearest: bits of the one below and of the one above, the even one where they are as near.
  [[nodiscard]] std::uint32_t nearest(float x) const {
    const double magnitude = std::fabs(double{x});
    std::uint32_t below = 0;
    for (std::uint32_t step = 1U << 14; step > 0; step /= 2) {
      if (below + step < infinity() && value(below + step) <= magnitude) below += step;
    }
    std::uint32_t found = below;
    if (below + 1 < infinity()) {
      const double down = magnitude - value(below);
      const double up = value(below + 1) - magnitude;
      if (up < down || (up == down && below % 2 == 1)) found = below + 1;
    }
    return found | (std::signbit(x) ? 0x8000U : 0);
  }
};

constexpr Format kFp16{CodecId::kFp16, "fp16", 10, 5};
constexpr Format kBf16{CodecId::kBf16, "bf16", 7, 8};

Bytes payload_of(const std::vector<std::uint32_t>& halves) {
  Bytes bytes;
  for (const std::uint32_t half : halves) {
    bytes.push_back(static_cast<std::byte>(half));
    bytes.push_back(static_cast<std::byte>(half >> 8));
  }
  return bytes;
}

class HalfTest : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Codecs, HalfTest, testing::Values(kFp16, kBf16),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(Half, KnownAnswers) {
  const Floats values{1,        -2,        65504,      65519.99F, 65520,       -1e30F,
                      0x1p-24F, 0x1p-25F,  -0.0F,      0x3p-25F,  2049,        2051,
                      -0.1F,    kDenormal, 0x1.8p-25F, 0x1p-14F,  0x1.FFCp-15F};
  EXPECT_EQ(encoded(kFp16.name, values),
            payload_of({0x3C00, 0xC000, 0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF, 0x0001, 0x0000, 0x8000,
                        0x0002, 0x6800, 0x6802, 0xAE66, 0x0000, 0x0001, 0x0400, 0x0400}));
  const Floats wide{1,         0x1.01p0F, 0x1.03p0F,   -0x1.03p0F,
                    kLargest,  -kLargest, kDenormal,   from_bits(0x00018000),
                    0x1p-133F, -0.0F,     0x1.FEp127F, from_bits(0x7F7F8000)};
  EXPECT_EQ(encoded(kBf16.name, wide),
            payload_of({0x3F80, 0x3F80, 0x3F82, 0xBF82, 0x7F7F, 0xFF7F, 0x0000, 0x0002, 0x0001,
                        0x8000, 0x7F7F, 0x7F7F}));
  EXPECT_EQ(encoded(kFp16.name, {}), Bytes());
}

TEST_P(HalfTest, EveryHalfDecodes) {
  const Format format = GetParam();
  std::vector<std::uint32_t> halves(1 << 16);
  for (std::uint32_t i = 0; i < halves.size(); ++i) halves[i] = i;
  const Bytes payload = payload_of(halves);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    Floats found(halves.size());
    decode(format.codec, payload, found);
    Floats sum(halves.size(), 1.0F);
    decode_add(format.codec, payload, -0.3F, sum);
    std::size_t wrong = 0;
    for (const std::uint32_t half : halves) {
      const auto expected = static_cast<float>(format.value(half));
      const float product = -0.3F * expected;
      const bool is_nan = std::isnan(expected) && std::isnan(found[half]) && std::isnan(sum[half]);
      const bool is_same =
          std::bit_cast<std::uint32_t>(found[half]) == std::bit_cast<std::uint32_t>(expected) &&
          sum[half] == 1.0F + product;
      wrong += is_nan || is_same ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << target;
  }
}

// Every finite half, the middle to the next, and the floats around them; both signs.
TEST_P(HalfTest, EveryRoundingBoundary) {
  const Format format = GetParam();
  Floats values;
  for (std::uint32_t half = 0; half < format.infinity(); ++half) {
    const double here = format.value(half);
    const double next =
        half + 1 < format.infinity() ? format.value(half + 1) : 2 * here - format.value(half - 1);
    for (const double at : {here, (here + next) / 2}) {
      const auto x = static_cast<float>(std::min(at, double{kLargest}));
      for (const float v : {x, std::nextafter(x, kLargest), std::nextafter(x, -kLargest)}) {
        values.push_back(v);
        values.push_back(-v);
      }
    }
  }
  for (const float v : odd_values(20'000, 1)) values.push_back(v);
  std::vector<std::uint32_t> expected;
  for (const float v : values) expected.push_back(format.nearest(v));
  const Bytes payload = payload_of(expected);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(encoded(format.name, values) == payload) << target;
  }
}

TEST_P(HalfTest, TheSameEverywhere) {
  const std::string name = GetParam().name;
  for (std::size_t n = 0; n < 140; ++n) {
    expect_same_everywhere(name, odd_values(n, static_cast<unsigned>(n)));
    expect_same_everywhere(name + ":ef=on", heavy_tailed(n, 2));
  }
  expect_same_everywhere(name, odd_values(200'003, 3));
  expect_same_everywhere(name + ":ef=on", heavy_tailed(200'003, 4));
  expect_same_everywhere(name, Floats(1001, 0.1F));
}

// Past the caches, where they cannot hold the output.
TEST_P(HalfTest, LargeOutputs) {
  const std::size_t n = (std::size_t{1} << 21) + 77;
  const Bytes payload = encoded(GetParam().name, heavy_tailed(n, 5));
  ThreadPool pool(3);
  Floats found(n);
  decode(GetParam().codec, payload, found, &pool);
  Floats sum(n, 0.0F);
  decode_add(GetParam().codec, payload, 1, sum);
  EXPECT_TRUE(found == sum);
}

TEST_P(HalfTest, ASecondStepSendsWhatTheFirstLost) {
  const auto codec = make_codec(std::string(GetParam().name) + ":ef=on");
  const auto encoder = codec->make_encoder(100);
  const Floats input(100, 0.1F);
  double sent = 0;
  for (std::uint64_t step = 0; step < 64; ++step) {
    Bytes out;
    encoder->encode(input, step, out);
    Floats values(100);
    decode(codec->id(), out, values);
    sent += double{values[50]};
  }
  // Without a residual the same error would add up 64 times, to 1.6e-3 and 6e-3.
  EXPECT_NEAR(sent, 6.4, 1e-3);
}

TEST_P(HalfTest, WhatIsNotFiniteTravelsAsItIs) {
  expect_raw_where_not_finite(GetParam().name);
  expect_raw_where_not_finite(std::string(GetParam().name) + ":ef=on");
}

TEST_P(HalfTest, LengthsThatDoNotFitAreRejected) {
  const Format format = GetParam();
  for (const std::size_t n : {0U, 1U, 2U, 33U}) {
    const Bytes payload(2 * n, std::byte{0x3C});
    EXPECT_NO_THROW(check_payload(format.codec, payload, n));
    EXPECT_LE(payload.size(), make_codec(format.name)->max_encoded_bytes(n));
    for (const int more : {-2, -1, 1, 2}) {
      if (static_cast<int>(payload.size()) + more < 0) continue;
      expect_rejected(format.codec,
                      Bytes(payload.size() + static_cast<std::size_t>(more), std::byte{1}), n);
    }
  }
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss,
                         [&] { check_payload(format.codec, Bytes(4), std::size_t{1} << 40); }));
}

TEST_P(HalfTest, Texts) {
  const std::string name = GetParam().name;
  EXPECT_EQ(make_codec(name)->text(), name + ":ef=off,non-finite=send");
  EXPECT_EQ(make_codec(name + ":ef=on")->id(), GetParam().codec);
  EXPECT_TRUE(make_codec(name)->make_encoder(5)->residual().empty());
}

}  // namespace
}  // namespace tersewire
