// Codecs adacomp and local-selection: bytes worked by hand, Algorithm 2 as the paper prints it, and
// payloads that no reader takes.
#include <gtest/gtest.h>

#include "codec_test_support.h"
#include "count_allocations.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr CodecId kBoth[] = {CodecId::kAdaComp, CodecId::kLocalSelection};

// --- Known answers

TEST(AdaComp, KnownAnswers) {
  const std::vector<KnownAnswer> answers{
      // Maxima 1 and 0.5, scale 0.75. H is 2, -2, 1 and 0.5, which reaches 0.5: all are sent.
      // Signs behind gaps of 0: 10 11 10 10.
      {"adacomp:bin=2",
       {1, -1, .5F, .25F},
       {0, 0, 0x40, 0x3F, 4, 0, 0b01011101},
       {.25F, -.25F, -.25F, -.5F}},
      // The first gradient counts once: 1, -1 (a tie) and 0.5 are sent. 10 11 10.
      {"local-selection:bin=2",
       {1, -1, .5F, .25F},
       {0, 0, 0x40, 0x3F, 3, 0, 0b011101},
       {.25F, -.25F, -.25F, .25F}},
      // A bin of zeros sends nothing and counts in the mean; the last bin is short. Gap 3 with
      // k = 1: 01 1, then +.
      {"adacomp:bin=3", {0, -0.0F, 0, 2}, {0, 0, 0x80, 0x3F, 1, 1, 0b0110}, {0, 0, 0, 1}},
      {"adacomp:bin=2", {0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0}},
      {"adacomp", {}, {0, 0, 0, 0, 0, 0}, {}},
      {"local-selection", {-2}, {0, 0, 0, 0x40, 1, 0, 0b11}, {0}},
      // 2e38 does not reach 3e38; with factor 4 its H overflows, and infinity does.
      {"adacomp:bin=2", {3e38F, 1e38F}, {0xE6, 0xB1, 0x61, 0x7F, 1, 0, 1}, {0, 1e38F}},
      {"adacomp:bin=2,factor=4",
       {3e38F, 1e38F},
       {0xE6, 0xB1, 0x61, 0x7F, 2, 0, 5},
       {0, 1e38F - 3e38F}},
      // The mean of the smallest denormal and 0 is rounded to 0; the element travels all the same.
      {"local-selection:bin=1", {kDenormal, 0}, {0, 0, 0, 0, 1, 0, 1}, {kDenormal, 0}},
  };
  expect_known_answers(answers);
}

TEST(AdaComp, DecodesToTheScale) {
  // 1.5; elements 1, 2 (negative) and 6 of 8.
  const Bytes payload = bytes_of({0, 0, 0xC0, 0x3F, 3, 0, 0b00011010, 0b01});
  const Floats expected{0, 1.5F, -1.5F, 0, 0, 0, 1.5F, 0};
  for (const CodecId codec : kBoth) {
    Floats out(8, 42.0F);
    decode(codec, payload, out);
    EXPECT_EQ(bits_of(out), bits_of(expected));
    out.assign(8, -0.0F);
    decode_add(codec, payload, -2, out);
    EXPECT_EQ(bits_of(out), bits_of(Floats{-0.0F, -3, 3, -0.0F, -0.0F, -0.0F, -3, -0.0F}));
  }
}

// --- Algorithm 2

struct Pack {
  Floats sent;  // Gq
  std::size_t count = 0;
  float scale = 0;
};

// Algorithm 2, in f32, line by line, with what the errata say of bins of zeros and short ones. The
// scale is the mean of g_max, whose sum the format prescribes.
Pack pack(const Floats& dw, Floats& residue, std::size_t t, float factor) {
  const std::size_t n = dw.size();
  Floats g(n);
  Floats h(n);
  for (std::size_t i = 0; i < n; ++i) {
    g[i] = residue[i] + dw[i];
    h[i] = g[i] + (factor - 1) * dw[i];
  }
  Floats g_max((n + t - 1) / t, 0.0F);
  for (std::size_t i = 0; i < n; ++i) g_max[i / t] = std::max(g_max[i / t], std::fabs(g[i]));
  double sum = 0;
  for (std::size_t block = 0; block < g_max.size(); block += 4096) {
    std::array<double, 16> lanes{};
    for (std::size_t i = block; i < std::min(block + 4096, g_max.size()); ++i) {
      lanes[(i - block) % 16] += g_max[i];
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    sum += lanes[0];
  }
  Pack packed{.sent = Floats(n, 0.0F)};
  packed.scale = n == 0 ? 0 : static_cast<float>(sum / static_cast<double>(g_max.size()));
  for (std::size_t index = 0; index < n; ++index) {
    if (std::fabs(h[index]) >= g_max[index / t] && g_max[index / t] != 0 && g[index] != 0) {
      packed.sent[index] = g[index] > 0 ? packed.scale : -packed.scale;
      ++packed.count;
      residue[index] = g[index] - packed.sent[index];
    } else {
      residue[index] = g[index];
    }
  }
  return packed;
}

struct Setting {
  CodecId codec;
  std::size_t bin;
  float factor;  // 1 in local selection
  [[nodiscard]] std::string text() const {
    const std::string bins = "bin=" + std::to_string(bin);
    return without_lead(codec == CodecId::kAdaComp
                            ? "adacomp:" + bins + ",factor=" + std::to_string(factor)
                            : "local-selection:" + bins);
  }
};

void expect_as_algorithm_2(const Setting& setting, const std::vector<Floats>& steps) {
  const std::size_t n = steps[0].size();
  SCOPED_TRACE(testing::Message() << setting.text() << ", " << n << " values");
  const auto encoder = make_codec(setting.text())->make_encoder(n);
  Floats residue(n, 0.0F);
  for (const Floats& dw : steps) {
    const Pack packed = pack(dw, residue, setting.bin, setting.factor);
    Bytes out;
    encoder->encode(dw, 0, out);
    float scale = 0;
    ASSERT_GE(out.size(), 6U);
    std::memcpy(&scale, out.data(), sizeof(scale));
    ASSERT_EQ(scale, packed.scale);
    ASSERT_EQ(payload_parameters(setting.codec, out)[1].value, std::to_string(packed.count));
    Floats decoded(n, 42.0F);
    decode(setting.codec, out, decoded);
    ASSERT_EQ(bits_of(decoded), bits_of(packed.sent));
    ASSERT_EQ(bits_of(encoder->residual()), bits_of(residue));
  }
}

// Small whole numbers: many ties, many zeros, whole bins of them.
Floats whole_numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Floats values(n);
  for (std::size_t e = 0; e < n; ++e) {
    values[e] = random() % 3 == 0 || e / 20 % 4 == 1 ? static_cast<float>(random() % 5) - 2 : 0;
  }
  return values;
}

TEST(AdaComp, DoesWhatAlgorithm2Says) {
  const std::vector<Setting> settings{
      {CodecId::kAdaComp, 50, 2},      {CodecId::kAdaComp, 500, 2},
      {CodecId::kAdaComp, 7, 1.5F},    {CodecId::kAdaComp, 64, 3},
      {CodecId::kAdaComp, 1, 10},      {CodecId::kAdaComp, std::size_t{1} << 40, 2},
      {CodecId::kAdaComp, 1023, 1},    {CodecId::kLocalSelection, 50, 1},
      {CodecId::kLocalSelection, 3, 1}};
  for (const Setting& setting : settings) {
    for (const std::size_t n : {0U, 1U, 3U, 15U, 16U, 17U, 49U, 50U, 51U, 63U, 64U, 65U, 100U, 999U,
                                1000U, 1025U, 5000U}) {
      const auto seed = static_cast<unsigned>(n);
      expect_as_algorithm_2(setting, {heavy_tailed(n, seed), heavy_tailed(n, seed + 1),
                                      heavy_tailed(n, seed + 2, 1e-3F)});
      expect_as_algorithm_2(setting, {whole_numbers(n, seed), whole_numbers(n, seed + 1)});
      expect_as_algorithm_2(setting, {odd_values(n, seed)});
    }
  }
  // More bins than a block of a sum has values.
  expect_as_algorithm_2({CodecId::kAdaComp, 2, 2}, {heavy_tailed(20'001, 3)});
}

TEST(AdaComp, SameEverywhere) {
  for (const char* text :
       {"adacomp", "adacomp:bin=50", "adacomp:bin=1,factor=3.5", "adacomp:bin=7,ef=off",
        "local-selection:bin=1000000", "local-selection:bin=33"}) {
    for (const std::size_t n : {0U, 1U, 31U, 63U, 64U, 65U, 1023U, 1025U, 3001U}) {
      expect_same_everywhere(text, heavy_tailed(n, 1));
      expect_same_everywhere(text, whole_numbers(n, 2));
      expect_same_everywhere(text, Floats(n, -1e30F));
    }
    // Long enough for three threads.
    expect_same_everywhere(text, heavy_tailed(300'001, 3));
  }
}

// --- Text

TEST(AdaComp, BinsGoByTheKindOfTheTensor) {
  const Floats input = heavy_tailed(2000, 4);
  const auto payload = [&](const std::string& text, TensorKind kind) {
    Bytes out;
    make_codec(text)->make_encoder(2000, {.kind = kind})->encode(input, 0, out);
    return out;
  };
  const std::string local = "local-selection:bin=";
  for (const auto& [name, bin] :
       {std::pair{std::string("adacomp"), std::string("adacomp:bin=")}, {local + "kind", local}}) {
    EXPECT_EQ(payload(name, TensorKind::kConv), payload(bin + "50", TensorKind::kOther));
    for (const TensorKind kind : {TensorKind::kOther, TensorKind::kDense, TensorKind::kRecurrent}) {
      EXPECT_EQ(payload(name, kind), payload(bin + "500", TensorKind::kConv));
      EXPECT_EQ(payload("local-selection", kind), payload(local + "50", TensorKind::kConv));
    }
  }
}

TEST(AdaComp, Texts) {
  EXPECT_EQ(make_codec("adacomp")->text(),
            "adacomp:bin=kind,factor=2,lead=2,ef=on,non-finite=send");
  EXPECT_EQ(make_codec("local-selection")->text(),
            "local-selection:bin=50,lead=4,ef=on,non-finite=send");
  for (const char* text : {"adacomp:bin=50,factor=1.1,lead=1,ef=off,non-finite=reject",
                           "adacomp:bin=1099511627776,factor=10,lead=2.5,ef=on,non-finite=send",
                           "local-selection:bin=1,lead=64,ef=on,non-finite=send"}) {
    EXPECT_EQ(make_codec(text)->text(), text);
  }
  for (const char* text : {"adacomp:bin=0", "adacomp:bin=1099511627777", "adacomp:bin=2.5",
                           "adacomp:bin=-1", "adacomp:factor=0.99", "adacomp:factor=10.1",
                           "adacomp:factor=nan", "adacomp:factor=x", "local-selection:factor=2"}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { make_codec(text); })) << text;
  }
}

// --- Values that are not finite, and payloads from outside

TEST(AdaComp, RawWhereNotFinite) {
  expect_raw_where_not_finite("adacomp");
  expect_raw_where_not_finite("local-selection:bin=50");
}

TEST(AdaComp, TruncatedAndLengthenedPayloads) {
  for (const CodecId id : kBoth) {
    Bytes out;
    make_codec(std::string(codec_name(id)) + ":bin=50")
        ->make_encoder(997)
        ->encode(heavy_tailed(997, 4), 0, out);
    EXPECT_NO_THROW(check_payload(id, out, 997));
    for (std::size_t n = 0; n < out.size(); ++n) {
      expect_rejected(id, Bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n)), 997);
    }
    expect_rejected(id, out, 500);
    for (const int more : {0, 1, 255}) {
      Bytes longer = out;
      longer.push_back(static_cast<std::byte>(more));
      expect_rejected(id, longer, 997);
    }
  }
}

TEST(AdaComp, AlteredPayloads) {
  const auto payload = [](float scale, const std::vector<int>& rest) {
    const auto raw = std::bit_cast<std::array<std::byte, 4>>(scale);
    Bytes out(raw.begin(), raw.end());
    const Bytes tail = bytes_of(rest);
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
  };
  for (const CodecId id : kBoth) {
    // Element 1 of 2: gap 1, +.
    EXPECT_NO_THROW(check_payload(id, payload(1, {1, 0, 0b010}), 2));
    EXPECT_NO_THROW(check_payload(id, payload(0, {0, 39}), 2));
    for (const float scale : {-1.0F, -0.0F, kInfinity, -kInfinity, std::nanf("")}) {
      expect_rejected(id, payload(scale, {1, 0, 0b010}), 2);
    }
    expect_rejected(id, payload(1, {3, 0, 0b010}), 2);        // more than there are
    expect_rejected(id, payload(1, {0x81, 0, 0, 0b010}), 2);  // a count of two bytes
    expect_rejected(id, payload(1, {2, 0, 0b010}), 2);        // one is missing
    expect_rejected(id, payload(1, {0, 0, 0b010}), 2);        // one too many
    expect_rejected(id, payload(1, {1, 0, 0b100}), 2);        // element 2
    expect_rejected(id, payload(1, {1, 0, 0b1010}), 2);       // a bit behind
    expect_rejected(id, payload(1, {1, 0, 0b010, 0}), 2);     // a byte behind
    for (const int k : {40, 63, 64, 255}) expect_rejected(id, payload(1, {0, k}), 2);
    expect_rejected(id, payload(1, {1, 0, 1}), 0);
  }
}

TEST(AdaComp, StepsAfterTheFirstAllocateNothing) {
  expect_no_allocations("adacomp");
  expect_no_allocations("local-selection:bin=50");
}

}  // namespace
}  // namespace tersewire
