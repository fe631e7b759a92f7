// Codec int8: bytes worked by hand, a plain encoder to compare with, and what must never happen.
#include <gtest/gtest.h>

#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr std::size_t kLengths[] = {0,  1,  2,  3,  4,   5,   7,    8,    9,    15,
                                    16, 17, 31, 33, 127, 128, 1023, 1024, 1025, 5000};

TEST(Int8, IsTheNearestOf255Steps) {
  // m = 127 makes every step 1; halves go to the even neighbour.
  const Floats input{127, -127, 64, 0.25F, 0.5F, -0.5F, 1.5F, 2.5F, -2.5F, -0.0F};
  const Bytes payload = encoded("int8", input);
  EXPECT_EQ(payload, bytes_of({0, 0, 0xFE, 0x42, 127, -127, 64, 0, 0, 0, 2, 2, -2, 0}));
  Floats out = decoded(CodecId::kInt8, payload, input.size());
  EXPECT_EQ(bits_of(out), bits_of(Floats{127, -127, 64, 0, 0, 0, 2, 2, -2, 0}));
  decode_add(CodecId::kInt8, payload, 0.5F, out);
  EXPECT_EQ(out, (Floats{190.5F, -190.5F, 96, 0, 0, 0, 3, 3, -3, 0}));
}

TEST(Int8, KeepsWhatItDoesNotSend) {
  const auto encoder = make_codec("int8:ef=on")->make_encoder(3);
  Bytes out;
  encoder->encode(Floats{127, 0.25F, -1.75F}, 0, out);
  EXPECT_EQ(bits_of(encoder->residual()), bits_of(Floats{0, 0.25F, 0.25F}));
}

TEST(Int8, OfNothingAndOfZeros) {
  EXPECT_EQ(encoded("int8", {}), bytes_of({0, 0, 0, 0}));
  EXPECT_EQ(encoded("int8", {0.0F, -0.0F}), bytes_of({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(bits_of(decoded(CodecId::kInt8, bytes_of({0, 0, 0, 0, 127, -127}), 2)),
            bits_of(Floats{0, -0.0F}));
}

// 127 times the 127th part of the largest float would be infinite.
TEST(Int8, KeepsTheLargestFloatFinite) {
  const Floats input{kLargest, -kLargest, 1};
  const Bytes payload = encoded("int8", input);
  EXPECT_EQ(payload, bytes_of({0xFE, 0xFF, 0x7F, 0x7F, 127, -127, 0}));
  const Floats out = decoded(CodecId::kInt8, payload, 3);
  EXPECT_NEAR(out[0] / kLargest, 1, 1e-6);
  EXPECT_NEAR(out[1] / kLargest, -1, 1e-6);
}

TEST(Int8, SendsAConstantAndOneHugeValueWell) {
  for (const float value : {0.3F, -7e-30F, 1.1754942e-38F}) {
    for (const float out : decoded(CodecId::kInt8, encoded("int8", Floats(9, value)), 9))
      EXPECT_NEAR(out / value, 1, 1e-4);
  }
  Floats values(100, 1.0F);
  values[50] = 1e30F;
  const Floats out = decoded(CodecId::kInt8, encoded("int8", values), 100);
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_NEAR(out[50] / 1e30F, 1, 1e-6);
}

// The format's arithmetic, one value at a time.
Bytes encode_plainly(const Floats& t) {
  float m = 0;
  for (const float value : t) m = std::max(m, std::fabs(value));
  m = std::min(m, from_bits(0x7F7FFFFE));
  Bytes out(sizeof(m));
  std::memcpy(out.data(), &m, sizeof(m));
  const float factor = m > 0 ? std::ldexp(1.0F, std::clamp(-std::ilogb(m), -126, 127)) : 0;
  for (const float value : t) {
    const float quotient = m > 0 ? 127 / (m * factor) : 0;
    const float scaled = value * factor * quotient;
    out.push_back(static_cast<std::byte>(static_cast<int>(std::nearbyint(scaled))));
  }
  return out;
}

TEST(Int8, IsWhatAPlainEncoderMakes) {
  for (const std::size_t n : kLengths) {
    const auto seed = static_cast<unsigned>(n);
    for (const Floats& input :
         {heavy_tailed(n, seed), heavy_tailed(n, seed, 1e-43F), odd_values(n, seed)}) {
      EXPECT_EQ(encoded("int8", input), encode_plainly(input)) << n;
    }
  }
}

TEST(Int8, IsTheSameEverywhere) {
  for (const std::size_t n : kLengths) {
    expect_same_everywhere("int8", odd_values(n, 5));
    expect_same_everywhere("int8:ef=on", heavy_tailed(n, 4));
  }
  expect_same_everywhere("int8", heavy_tailed(300'001, 6));
  expect_same_everywhere("int8:ef=on", heavy_tailed(300'001, 7));
}

// Half a step, and a few roundings of what is sent.
TEST(Int8, ErrsByHalfAStepAtMost) {
  for (const float scale : {1e-36F, 1e-3F, 1.0F, 1e35F}) {
    const Floats input = heavy_tailed(20'000, 9, scale);
    double m = 0;
    for (const float value : input) m = std::max(m, std::fabs(double{value}));
    const Floats out = decoded(CodecId::kInt8, encoded("int8", input), input.size());
    double worst = 0;
    for (std::size_t e = 0; e < input.size(); ++e) {
      worst = std::max(worst, std::fabs(double{input[e]} - double{out[e]}));
    }
    EXPECT_LE(worst, m / 254 * (1 + 1e-4));
    EXPECT_GE(worst, m / 254 * 0.9);
  }
}

TEST(Int8, TravelsRawWhereNotFinite) { expect_raw_where_not_finite("int8:ef=on"); }

TEST(Int8, MalformedPayloadsAreRejected) {
  const Bytes good = encoded("int8", heavy_tailed(100, 1));
  for (const std::size_t elems : {0U, 99U, 101U}) expect_rejected(CodecId::kInt8, good, elems);
  for (std::size_t bytes = 0; bytes < 4; ++bytes) {
    expect_rejected(CodecId::kInt8, Bytes(bytes, std::byte{0}), 0);
  }
  for (const std::uint32_t bits :
       {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0x7F800001U, 0x80000000U, 0xBF800000U}) {
    Bytes bad = good;
    std::memcpy(bad.data(), &bits, sizeof(bits));
    expect_rejected(CodecId::kInt8, bad, 100);
    expect_rejected(CodecId::kInt8, Bytes(bad.begin(), bad.begin() + 4), 0);
  }
  for (const std::size_t at : {4U, 5U, 60U, 103U}) {
    Bytes bad = good;
    bad[at] = std::byte{0x80};
    expect_rejected(CodecId::kInt8, bad, 100);
  }
}

TEST(Int8, SaysWhatItHolds) {
  const auto parameters = payload_parameters(CodecId::kInt8, encoded("int8", {-0.25F}));
  ASSERT_EQ(parameters.size(), 1U);
  EXPECT_EQ(parameters[0].key + parameters[0].value, "m0.25");
  EXPECT_EQ(make_codec("int8")->text(), "int8:ef=off,non-finite=send");
  EXPECT_EQ(make_codec("int8")->max_encoded_bytes(1), 5U);
  EXPECT_EQ(make_codec("int8")->max_encoded_bytes(100), 400U);
}

TEST(Int8, AllocatesNothingOnceItsBufferHasGrown) { expect_no_allocations("int8:ef=on"); }

}  // namespace
}  // namespace tersewire
