// Codecs topk and dryden: bytes worked by hand, a plain selection to compare with, and payloads
// that no reader takes.
#include <gtest/gtest.h>

#include "../../src/kernels/random_words.h"
#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

// --- Known answers

Floats with_values(std::size_t n, const std::vector<std::pair<std::size_t, float>>& values) {
  Floats made(n, 0.0F);
  for (const auto& [elem, value] : values) made[elem] = value;
  return made;
}

TEST(TopK, KnownAnswers) {
  const std::vector<KnownAnswer> answers{
      // The second largest magnitude is 2. A bitmap is a byte, gaps would be two.
      {"topk:fraction=0.5",
       {4, -2, 1, .5F},
       {0, 2, 0, 0, 0x80, 0x40, 0, 0, 0, 0xC0, 0b0011},
       {0, 0, 1, .5F}},
      // Both reach a threshold that half of the one value wanted would set; -0 never travels.
      {"topk:fraction=0.1",
       {-3, -0.0F, 3},
       {0, 2, 0, 0, 0x40, 0xC0, 0, 0, 0x40, 0x40, 0b101},
       {0, 0, 0}},
      // Gaps 7 and 42 take 17, 13, 12 and 13 bits with k from 2 to 5: 1 1110 and 001 0101.
      {"topk:fraction=0.02",
       with_values(100, {{7, -3.0F}, {50, 1.5F}}),
       {1, 2, 0, 0, 0x40, 0xC0, 0, 0, 0xC0, 0x3F, 4, 0b10001111, 0b1010},
       Floats(100, 0.0F)},
      // Fewer than that are not 0.
      {"topk:fraction=0.9", {0, kDenormal, 0}, {0, 1, 1, 0, 0, 0, 0b010}, {0, 0, 0}},
      {"topk", {}, {0, 0}, {}},
      {"topk", {0, 0}, {0, 0, 0}, {0, 0}},
      // The means 4 and -2, gaps of 0: 10 11.
      {"dryden:fraction=0.5",
       {4, -2, 1, .5F},
       {0, 0, 0x80, 0x40, 0, 0, 0, 0xC0, 2, 0, 0b1101},
       {0, 0, 1, .5F}},
      // 5 and 3 become 4; none is negative. Gaps 1 and 0 with k = 0: 01 0, 1 0.
      {"dryden:fraction=0.4",
       {0, 5, 3, 2, -1},
       {0, 0, 0x80, 0x40, 0, 0, 0, 0, 2, 0, 0b01010},
       {0, 1, -1, 2, -1}},
      {"dryden", {}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {}},
  };
  expect_known_answers(answers);
}

TEST(TopK, DecodesWhatIsSent) {
  // Elements 1 (NaN as it is) and 3 of 5, as gaps and as a bitmap.
  const std::vector<int> values{0x01, 0, 0xC0, 0x7F, 0, 0, 0, 0xC0};
  for (const std::vector<int>& positions : {std::vector<int>{0, 0b1010}, {1, 0, 0b1010}}) {
    std::vector<int> payload{positions[0], 2};
    payload.insert(payload.end(), values.begin(), values.end());
    payload.insert(payload.end(), positions.begin() + 1, positions.end());
    Floats out(5, 42.0F);
    decode(CodecId::kTopK, bytes_of(payload), out);
    EXPECT_EQ(bits_of(out), (std::vector<std::uint32_t>{0, 0x7FC00001, 0, 0xC0000000, 0}));
    out.assign(5, -0.0F);
    decode_add(CodecId::kTopK, bytes_of(payload), .5F, out);
    EXPECT_TRUE(std::isnan(out[1]));
    out[1] = 0;
    EXPECT_EQ(bits_of(out), bits_of(Floats{-0.0F, 0, -0.0F, -1, -0.0F}));
  }
}

// --- The selection

// The threshold that the format describes.
float plain_threshold(const Floats& t, double fraction, const kernels::RandomStream& stream) {
  const std::size_t n = t.size();
  Floats sample;
  if (n <= 16384) {
    for (const float value : t) sample.push_back(std::fabs(value));
  } else {
    std::vector<std::uint32_t> words(std::max<std::size_t>(16384, n / 256));
    kernels::random_words(stream, 0, words.size(), words.data());
    for (const std::uint64_t word : words) sample.push_back(std::fabs(t[word * n >> 32]));
  }
  std::ranges::sort(sample, std::greater<>());
  const auto rank = std::llrint(fraction * static_cast<double>(sample.size()));
  return sample[static_cast<std::size_t>(std::max(rank, 1LL)) - 1];
}

void expect_as_plain(double fraction, const Floats& input) {
  const std::size_t n = input.size();
  SCOPED_TRACE(testing::Message() << n << " values, fraction " << fraction);
  const EncoderContext context{.seed = 5, .sender = 6, .tensor = 7};
  const std::string text = ":fraction=" + std::to_string(fraction);
  const auto topk = make_codec(without_lead("topk" + text))->make_encoder(n, context);
  const auto dryden = make_codec("dryden" + text + ",ef=off")->make_encoder(n, context);
  Floats t(n, 0.0F);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::size_t e = 0; e < n; ++e) t[e] += input[e];
    const float threshold =
        plain_threshold(t, fraction, {.seed = 5, .sender = 6, .tensor = 7, .step = step});
    Bytes out;
    topk->encode(input, step, out);
    Floats decoded(n);
    decode(CodecId::kTopK, out, decoded);
    std::size_t wrong = 0;
    for (std::size_t e = 0; e < n; ++e) {
      wrong += decoded[e] == (std::fabs(t[e]) >= threshold ? t[e] : 0) ? 0 : 1;
      t[e] -= decoded[e];
    }
    ASSERT_EQ(wrong, 0U) << "step " << step;
    ASSERT_EQ(bits_of(topk->residual()), bits_of(t));
  }
  // Dryden sends the same elements, as means.
  Bytes out;
  dryden->encode(input, 9, out);
  Floats decoded(n);
  decode(CodecId::kDryden, out, decoded);
  const float threshold =
      plain_threshold(input, fraction, {.seed = 5, .sender = 6, .tensor = 7, .step = 9});
  double sum[2]{};
  std::size_t count[2]{};
  for (const float value : input) {
    if (value == 0 || std::fabs(value) < threshold) continue;
    sum[value < 0 ? 1 : 0] += double{value};
    ++count[value < 0 ? 1 : 0];
  }
  for (std::size_t e = 0; e < n; ++e) {
    if (input[e] == 0 || std::fabs(input[e]) < threshold) {
      ASSERT_EQ(decoded[e], 0);
      continue;
    }
    const int sign = input[e] < 0 ? 1 : 0;
    // The sums differ in the order of their terms only.
    const double mean = sum[sign] / static_cast<double>(count[sign]);
    ASSERT_NEAR(decoded[e], mean, 1e-6 * std::fabs(mean)) << e;
  }
}

TEST(TopK, SelectsByTheSample) {
  for (const double fraction : {0.003, 0.05, 0.5, 1.0}) {
    for (const std::size_t n : {1U, 2U, 15U, 63U, 64U, 65U, 1000U, 16384U, 16385U, 20'000U}) {
      expect_as_plain(fraction, heavy_tailed(n, static_cast<unsigned>(n)));
    }
  }
  // More than 16384 samples.
  expect_as_plain(0.01, heavy_tailed(4'300'000, 8));
}

// The rank in the sample has a relative standard deviation of 1 / sqrt(0.05 * 16384) = 3.5 %; four
// of them are 14 %. The seeds are fixed.
TEST(TopK, SendsAboutTheFractionAskedFor) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Bytes out;
    make_codec("topk")
        ->make_encoder(100'000, {.seed = seed})
        ->encode(heavy_tailed(100'000, 9), 0, out);
    const double sent = std::stod(payload_parameters(CodecId::kTopK, out)[1].value);
    EXPECT_NEAR(sent, 5000, 700) << "seed " << seed;
  }
}

TEST(TopK, SamplesAreDrawnBySeedSenderTensorAndStep) {
  const Floats input = heavy_tailed(50'000, 9);
  const auto payload = [&](const EncoderContext& context, std::uint64_t step) {
    Bytes out;
    make_codec("topk")->make_encoder(50'000, context)->encode(input, step, out);
    return out;
  };
  const Bytes first = payload({.seed = 1}, 0);
  EXPECT_EQ(payload({.seed = 1}, 0), first);
  EXPECT_NE(payload({.seed = 2}, 0), first);
  EXPECT_NE(payload({.seed = 1, .sender = 1}, 0), first);
  EXPECT_NE(payload({.seed = 1, .tensor = 1}, 0), first);
  EXPECT_NE(payload({.seed = 1}, 1), first);
}

TEST(TopK, SameEverywhere) {
  for (const char* text : {"topk", "topk:fraction=1", "topk:fraction=0.3,ef=off", "dryden",
                           "dryden:fraction=0.2", "dryden:fraction=0.5,ef=off"}) {
    for (const std::size_t n : {0U, 1U, 31U, 63U, 64U, 65U, 1023U, 1025U, 3001U}) {
      expect_same_everywhere(text, heavy_tailed(n, 1));
      expect_same_everywhere(text, Floats(n, 0.0F));
      expect_same_everywhere(text, Floats(n, -1e30F));
    }
    for (const std::size_t n : {16'385U, 300'001U})
      expect_same_everywhere(text, heavy_tailed(n, 3));
  }
  for (const char* text : {"topk:fraction=0.3,ef=off", "dryden:fraction=0.3,ef=off"}) {
    expect_same_everywhere(text, odd_values(1000, 4));
  }
}

TEST(TopK, NoPayloadIsLongerThanSaid) {
  for (const char* text : {"topk", "dryden"}) {
    const auto codec = make_codec(text);
    for (const std::size_t n : {0U, 1U, 2U, 127U, 128U, 1000U, 20'000U}) {
      Bytes out;
      codec->make_encoder(n)->encode(Floats(n, 1.0F), 0, out);
      EXPECT_LE(out.size(), codec->max_encoded_bytes(n));
      if (codec->id() != CodecId::kTopK) continue;
      // All are sent: the bound is met.
      EXPECT_EQ(out.size(), codec->max_encoded_bytes(n));
    }
  }
}

TEST(TopK, GivingBackRestoresTheSum) {
  const auto encoder = make_codec(without_lead("topk"))->make_encoder(3001);
  Bytes out;
  for (unsigned step = 0; step < 4; ++step) {
    const Floats input = heavy_tailed(3001, step);
    Floats sum(encoder->residual().begin(), encoder->residual().end());
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += input[e];
    out.clear();
    encoder->encode(input, step, out);
    encoder->give_back(CodecId::kTopK, out);
    EXPECT_EQ(bits_of(encoder->residual()), bits_of(sum));
  }
}

// --- Text

TEST(TopK, Texts) {
  EXPECT_EQ(make_codec("topk")->text(), "topk:fraction=0.05,lead=2,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("dryden")->text(), "dryden:fraction=0.01,lead=2,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("topk:fraction=1,ef=off")->text(),
            "topk:fraction=1,lead=1,ef=off,non-finite=send");
  for (const char* value : {"0", "-0.1", "1.01", "nan", "inf", "5%", ""}) {
    for (const std::string name : {"topk", "dryden"}) {
      const std::string text = name + ":fraction=" + value;
      EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { make_codec(text); })) << text;
    }
  }
}

// --- Values that are not finite, and payloads from outside

TEST(TopK, RawWhereNotFinite) {
  expect_raw_where_not_finite("topk");
  expect_raw_where_not_finite("dryden:fraction=0.1");
}

TEST(TopK, TruncatedAndLengthenedPayloads) {
  // Gaps, a bitmap, and a ternary payload.
  for (const char* text : {"topk:fraction=0.05", "topk:fraction=0.7", "dryden:fraction=0.1"}) {
    const auto codec = make_codec(text);
    Bytes out;
    codec->make_encoder(397)->encode(heavy_tailed(397, 4), 0, out);
    EXPECT_NO_THROW(check_payload(codec->id(), out, 397));
    for (std::size_t n = 0; n < out.size(); ++n) {
      expect_rejected(codec->id(), Bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n)),
                      397);
    }
    expect_rejected(codec->id(), out, 300);
    for (const int more : {0, 1}) {
      Bytes longer = out;
      longer.push_back(static_cast<std::byte>(more));
      expect_rejected(codec->id(), longer, 397);
    }
  }
}

TEST(TopK, AlteredPayloads) {
  const auto rejected = [](const std::vector<int>& payload, std::size_t n) {
    expect_rejected(CodecId::kTopK, bytes_of(payload), n);
  };
  EXPECT_NO_THROW(check_payload(CodecId::kTopK, bytes_of({0, 1, 1, 2, 3, 4, 0b10}), 2));
  EXPECT_NO_THROW(check_payload(CodecId::kTopK, bytes_of({1, 1, 1, 2, 3, 4, 0, 0b10}), 2));
  for (int layout = 2; layout < 256; ++layout) rejected({layout, 1, 1, 2, 3, 4, 0b10}, 2);
  for (const int layout : {0, 1}) {
    rejected({layout, 3, 1, 2, 3, 4, 0b10}, 2);     // more than there are
    rejected({layout, 0x81, 0, 1, 2, 3, 4, 0}, 2);  // a count of two bytes
    rejected({layout, 2, 1, 2, 3, 4, 0b10}, 2);     // a value is missing
  }
  rejected({0, 1, 1, 2, 3, 4, 0b11}, 2);
  rejected({0, 1, 1, 2, 3, 4, 0b00}, 2);
  rejected({0, 1, 1, 2, 3, 4, 0b100}, 2);
  rejected({0, 1, 1, 2, 3, 4, 0b01, 0}, 2);
  rejected({1, 1, 1, 2, 3, 4, 40, 0b10}, 2);
  rejected({1, 1, 1, 2, 3, 4, 0, 0b100}, 2);
  rejected({1, 1, 1, 2, 3, 4, 0, 0b110}, 2);
  rejected({1, 1, 1, 2, 3, 4, 0, 0b10, 0}, 2);
  rejected({1, 0, 0, 0}, 2);
}

TEST(Dryden, AlteredPayloads) {
  const auto payload = [](std::uint32_t plus, std::uint32_t minus) {
    Bytes out;
    for (const std::uint32_t bits : {plus, minus}) {
      const auto raw = std::bit_cast<std::array<std::byte, 4>>(bits);
      out.insert(out.end(), raw.begin(), raw.end());
    }
    const Bytes rest = bytes_of({1, 0, 0b010});
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  };
  // A mean may have either sign.
  EXPECT_NO_THROW(check_payload(CodecId::kDryden, payload(0x80000000, 0x3F800000), 2));
  for (const std::uint32_t bits : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0xFF800001U}) {
    expect_rejected(CodecId::kDryden, payload(bits, 0), 2);
    expect_rejected(CodecId::kDryden, payload(0, bits), 2);
  }
}

TEST(TopK, StepsAfterTheFirstAllocateNothing) {
  // With a residual the number of elements sent varies, and the buffer may have to grow again.
  expect_no_allocations("topk:ef=off");
  expect_no_allocations("topk:fraction=1,ef=off");
  expect_no_allocations("dryden:ef=off");
}

}  // namespace
}  // namespace tersewire
