// Codecs mqe1bit and signsgd: bytes worked by hand, a plain encoder to compare with, and what must
// never happen.
#include <gtest/gtest.h>

#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr std::size_t kLengths[] = {0,   1,   2,    3,    4,    5,    7,    8,    9,
                                    15,  16,  17,   31,   33,   63,   64,   65,   127,
                                    128, 129, 1023, 1024, 1025, 4095, 4096, 4097, 9999};

struct Step {
  Bytes payload;
  Floats residual;
};

Step encoded(const std::string& text, const Floats& input) {
  const auto encoder = make_codec(without_lead(text))->make_encoder(input.size());
  Step step;
  const Encoded made = encoder->encode(input, 0, step.payload);
  EXPECT_EQ(made.codec, make_codec(text)->id());
  EXPECT_FALSE(made.not_finite);
  step.residual.assign(encoder->residual().begin(), encoder->residual().end());
  return step;
}

TEST(Mqe1Bit, SendsTheMeanOfEitherSign) {
  // 1, 3, -0 and 8 have the mean 3; -2, -4 and -6 have the mean -4.
  const Step step = encoded("mqe1bit", {1, -2, 3, -0.0F, -4, 8, -6});
  EXPECT_EQ(step.payload, bytes_of({0, 0, 0x40, 0x40, 0, 0, 0x80, 0xC0, 0b01010010}));
  EXPECT_EQ(step.residual, (Floats{-2, 2, 0, -3, 0, 5, -2}));
  Floats out(7);
  decode(CodecId::kMqe1Bit, step.payload, out);
  EXPECT_EQ(out, (Floats{3, -4, 3, 3, -4, 3, -4}));
  decode_add(CodecId::kMqe1Bit, step.payload, -0.5F, out);
  EXPECT_EQ(out, (Floats{1.5F, -2, 1.5F, 1.5F, -2, 1.5F, -2}));
}

TEST(SignSgd, SendsTheMeanMagnitude) {
  // The magnitudes add up to 27. The ninth bit begins a second byte.
  const Step step = encoded("signsgd", {1, -2, 3, -0.0F, -4, 8, -6, 0, -3});
  EXPECT_EQ(step.payload, bytes_of({0, 0, 0x40, 0x40, 0b01010010, 1}));
  EXPECT_EQ(step.residual, (Floats{-2, 1, 0, -3, -1, 5, -3, -3, 0}));
  Floats out(9);
  decode(CodecId::kSignSgd, step.payload, out);
  EXPECT_EQ(out, (Floats{3, -3, 3, 3, -3, 3, -3, 3, -3}));
}

TEST(Signs, OfNothingAreAHead) {
  EXPECT_EQ(encoded("mqe1bit", {}).payload, bytes_of({0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encoded("signsgd", {}).payload, bytes_of({0, 0, 0, 0}));
}

TEST(Signs, OfZerosDecodeToZeros) {
  for (const char* text : {"mqe1bit", "signsgd"}) {
    for (const float zero : {0.0F, -0.0F}) {
      const Step step = encoded(text, Floats(11, zero));
      EXPECT_TRUE(std::ranges::all_of(step.payload, [](std::byte b) { return b == std::byte{0}; }));
      Floats out(11, 1.0F);
      decode(make_codec(text)->id(), step.payload, out);
      EXPECT_EQ(bits_of(out), bits_of(Floats(11, 0.0F)));
    }
  }
}

TEST(Signs, OfOneSignLeaveTheOtherMeanZero) {
  EXPECT_EQ(encoded("mqe1bit", Floats(9, 2.0F)).payload,
            bytes_of({0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encoded("mqe1bit", Floats(9, -2.0F)).payload,
            bytes_of({0, 0, 0, 0, 0, 0, 0, 0xC0, 255, 1}));
}

TEST(Signs, KeepEdgesOfTheRange) {
  for (const float value : {kDenormal, 1.1754942e-38F, kLargest}) {
    for (const char* text : {"mqe1bit", "signsgd"}) {
      Floats values(333, value);
      for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -value;
      const Step step = encoded(text, values);
      Floats out(values.size());
      decode(make_codec(text)->id(), step.payload, out);
      EXPECT_EQ(out, values) << text;
      EXPECT_EQ(step.residual, Floats(values.size(), 0.0F));
    }
  }
}

// S of the specification.
double plain_sum(const std::vector<double>& values) {
  constexpr std::size_t kBlock = 4096;
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    std::array<double, 16> lanes{};
    for (std::size_t i = 0; i < std::min(kBlock, values.size() - begin); ++i) {
      lanes[i % 16] += values[begin + i];
    }
    for (std::size_t h = 8; h > 0; h /= 2) {
      for (std::size_t j = 0; j < h; ++j) lanes[j] += lanes[j + h];
    }
    sum += lanes[0];
  }
  return sum;
}

float plain_mean(const Floats& t, const std::function<bool(float)>& condition) {
  std::vector<double> values(t.size(), 0.0);
  double count = 0;
  for (std::size_t e = 0; e < t.size(); ++e) {
    if (!condition(t[e])) continue;
    values[e] = t[e];
    ++count;
  }
  return count == 0 ? 0.0F : static_cast<float>(plain_sum(values) / count);
}

// The whole of the specification, one value at a time.
Bytes encode_plainly(bool means, const Floats& t) {
  std::vector<float> head;
  if (means) {
    head = {plain_mean(t, [](float v) { return v >= 0; }),
            plain_mean(t, [](float v) { return v < 0; })};
  } else {
    Floats magnitudes = t;
    for (float& value : magnitudes) value = std::fabs(value);
    head = {plain_mean(magnitudes, [](float) { return true; })};
  }
  Bytes out(head.size() * sizeof(float));
  std::memcpy(out.data(), head.data(), out.size());
  const std::size_t start = out.size();
  out.resize(start + (t.size() + 7) / 8, std::byte{0});
  for (std::size_t e = 0; e < t.size(); ++e) {
    if (t[e] < 0) out[start + e / 8] |= std::byte{1} << static_cast<int>(e % 8);
  }
  return out;
}

TEST(Signs, AreWhatAPlainEncoderMakes) {
  for (const std::size_t n : kLengths) {
    const auto seed = static_cast<unsigned>(n);
    for (const Floats& input : {heavy_tailed(n, seed), odd_values(n, seed)}) {
      EXPECT_EQ(encoded("mqe1bit", input).payload, encode_plainly(true, input)) << n;
      EXPECT_EQ(encoded("signsgd", input).payload, encode_plainly(false, input)) << n;
    }
  }
}

TEST(Signs, AreTheSameEverywhere) {
  for (const std::string text : {"mqe1bit", "signsgd"}) {
    for (const std::size_t n : kLengths) {
      expect_same_everywhere(text, heavy_tailed(n, 4));
      expect_same_everywhere(text + ":ef=off", odd_values(n, 5));
    }
    expect_same_everywhere(text, heavy_tailed(300'001, 6));
  }
}

// No two values make a smaller square error: a mean leaves residuals that add up to nothing.
TEST(Mqe1Bit, LeavesNothingOfEitherSignOnAverage) {
  const Floats input = heavy_tailed(10'000, 8, 1);
  const Step step = encoded("mqe1bit", input);
  double plus = 0;
  double minus = 0;
  for (std::size_t e = 0; e < input.size(); ++e) {
    (input[e] < 0 ? minus : plus) += double{step.residual[e]};
  }
  EXPECT_LT(std::fabs(plus), 1e-2);
  EXPECT_LT(std::fabs(minus), 1e-2);
}

TEST(Signs, TravelRawWhereNotFinite) {
  expect_raw_where_not_finite("mqe1bit");
  expect_raw_where_not_finite("signsgd");
}

TEST(Signs, MalformedPayloadsAreRejected) {
  const Bytes means = encoded("mqe1bit", heavy_tailed(11, 1)).payload;
  const Bytes magnitude = encoded("signsgd", heavy_tailed(11, 1)).payload;
  const auto expect_both_rejected = [&](std::size_t elems,
                                        const std::function<void(Bytes&)>& edit) {
    for (const auto& [codec, good] :
         {std::pair(CodecId::kMqe1Bit, means), std::pair(CodecId::kSignSgd, magnitude)}) {
      Bytes bad = good;
      edit(bad);
      expect_rejected(codec, bad, elems);
    }
  };
  for (const std::size_t elems : {0U, 8U, 17U}) expect_both_rejected(elems, [](Bytes&) {});
  for (std::size_t cut = 1; cut <= 10; ++cut) {
    expect_both_rejected(
        11, [&](Bytes& bytes) { bytes.resize(bytes.size() - std::min(cut, bytes.size())); });
  }
  expect_both_rejected(11, [](Bytes& bytes) { bytes.push_back(std::byte{0}); });
  for (int bit = 3; bit < 8; ++bit) {
    expect_both_rejected(11, [&](Bytes& bytes) { bytes.back() |= std::byte{1} << bit; });
  }
  for (const std::uint32_t bits : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0x7F800001U}) {
    expect_both_rejected(11, [&](Bytes& bytes) { std::memcpy(bytes.data(), &bits, sizeof(bits)); });
    Bytes bad = means;
    std::memcpy(bad.data() + sizeof(bits), &bits, sizeof(bits));
    expect_rejected(CodecId::kMqe1Bit, bad, 11);
  }
  for (const float negative : {-0.0F, -1.0F}) {
    Bytes bad = magnitude;
    std::memcpy(bad.data(), &negative, sizeof(negative));
    expect_rejected(CodecId::kSignSgd, bad, 11);
  }
}

// A payload need not be one that an encoder makes: means may have any sign.
TEST(Mqe1Bit, DecodesMeansOfAnySign) {
  Floats out(2);
  decode(CodecId::kMqe1Bit, bytes_of({0, 0, 0x80, 0xC0, 0, 0, 0, 0x80, 2}), out);
  EXPECT_EQ(bits_of(out), bits_of(Floats{-4, -0.0F}));
}

TEST(Signs, SayWhatTheyHold) {
  const auto means = payload_parameters(CodecId::kMqe1Bit, encoded("mqe1bit", {3, -4}).payload);
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means[0].key + means[0].value, "plus3");
  EXPECT_EQ(means[1].key + means[1].value, "minus-4");
  const auto one = payload_parameters(CodecId::kSignSgd, encoded("signsgd", {3, -4}).payload);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].value, "3.5");
  EXPECT_EQ(make_codec("mqe1bit")->text(), "mqe1bit:lead=2,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("signsgd:ef=off")->text(), "signsgd:lead=1,ef=off,non-finite=send");
}

TEST(Signs, AllocateNothingOnceTheirBufferHasGrown) {
  expect_no_allocations("mqe1bit");
  expect_no_allocations("signsgd");
}

}  // namespace
}  // namespace tersewire
