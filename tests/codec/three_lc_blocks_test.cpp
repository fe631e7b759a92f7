// Codec 3lc in blocks, and leads: bytes worked by hand, a plain encoder to compare with, and what
// must never happen.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "codec_test_support.h"

namespace tersewire::test {
namespace {

// --- The specification, one value at a time

template <typename T>
void append(Bytes& out, const T& value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), raw.begin(), raw.end());
}

void append_varint(Bytes& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<std::byte>(value | 128));
  out.push_back(static_cast<std::byte>(value));
}

// S(v) of at most 4096 values.
double sum_of(std::span<const float> values) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) lanes.at(i % 16) += double{values[i]};
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes.at(i) += lanes.at(i + half);
  }
  return lanes[0];
}

float scaled(float v, unsigned q) {
  const std::array<std::uint32_t, 8> eighths{0x3F800000, 0x3F6AC0C7, 0x3F5744FD, 0x3F45672A,
                                             0x3F3504F3, 0x3F25FED7, 0x3F1837F0, 0x3F0B95C2};
  const float product = v * from_bits(eighths.at(q % 8));
  return product * std::ldexp(1.0F, -static_cast<int>(q / 8));
}

unsigned scale_of(float largest, float mean) {
  if (mean == 0) return 255;
  int exponent = 0;
  const double g = 2 * std::frexp(double{largest} / double{mean}, &exponent);
  unsigned q = 8 * static_cast<unsigned>(exponent - 1);
  for (int i = 0; i < 8; ++i) q += std::exp2((2 * i + 1) / 16.0) < g ? 1 : 0;
  return std::min(q, 255U);
}

// Of the positions' bits where a gap's lower k are written as they are.
std::size_t bits_with(const std::vector<std::size_t>& gaps, unsigned k) {
  std::size_t bits = 0;
  for (const std::size_t gap : gaps) bits += (gap >> k) + 1 + k + 1;  // and the sign
  return bits;
}

// As the format's positions, by trying every k.
Bytes positions_of(const std::vector<std::size_t>& sent, const Floats& total) {
  std::vector<std::size_t> gaps;
  std::size_t next = 0;
  for (const std::size_t e : sent) {
    gaps.push_back(e - next);
    next = e + 1;
  }
  unsigned best = 0;
  for (unsigned k = 1; k < 40; ++k) {
    if (bits_with(gaps, k) < bits_with(gaps, best)) best = k;
  }
  std::vector<bool> bits;
  for (std::size_t s = 0; s < sent.size(); ++s) {
    bits.insert(bits.end(), gaps[s] >> best, false);
    bits.push_back(true);
    for (unsigned i = 0; i < best; ++i) bits.push_back((gaps[s] >> i & 1) != 0);
    bits.push_back(total[sent[s]] < 0);
  }
  Bytes out;
  append_varint(out, sent.size());
  out.push_back(static_cast<std::byte>(best));
  const std::size_t head = out.size();
  out.resize(head + (bits.size() + 7) / 8, std::byte{0});
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) out[head + i / 8] |= std::byte{1} << (i % 8);
  }
  return out;
}

struct Settings {
  float s = 1.25F;
  std::size_t block = 256;
  float lead = 1;

  [[nodiscard]] std::string text() const {
    return "3lc:s=" + std::to_string(s) + ",block=" + std::to_string(block) +
           ",lead=" + std::to_string(lead);
  }
};

// Updates the residual. Everything must stay finite.
Bytes encode_plainly(const Floats& input, Floats& residual, const Settings& settings) {
  const std::size_t n = input.size();
  Floats total(n);
  Floats magnitudes(n);
  for (std::size_t e = 0; e < n; ++e) {
    const float counted = settings.lead * input[e];
    total[e] = residual[e] + counted;
    magnitudes[e] = std::fabs(total[e]);
  }
  const std::size_t blocks = (n + settings.block - 1) / settings.block;
  const auto t = static_cast<float>(double{settings.s} * 4 / 3);
  std::vector<std::vector<std::size_t>> chosen(blocks);
  Floats means(blocks, 0.0F);  // of what is chosen
  for (std::size_t j = 0; j < blocks; ++j) {
    const std::size_t first = j * settings.block;
    const auto values = std::span(magnitudes).subspan(first, std::min(settings.block, n - first));
    const auto mean = static_cast<float>(sum_of(values) / static_cast<double>(values.size()));
    const float limit = std::min(t * mean, std::ranges::max(values));
    Floats kept(values.size(), 0.0F);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (values[i] == 0 || values[i] < limit) continue;
      kept[i] = values[i];
      chosen[j].push_back(first + i);
    }
    if (chosen[j].empty()) continue;
    means[j] = static_cast<float>(sum_of(kept) / static_cast<double>(chosen[j].size()));
  }
  const float m = means.empty() ? 0.0F : std::ranges::max(means);
  std::vector<unsigned> scales(blocks);
  std::vector<std::size_t> sent;
  for (std::size_t j = 0; j < blocks; ++j) {
    scales[j] = scale_of(m, means[j]);
    if (scales[j] != 255) sent.insert(sent.end(), chosen[j].begin(), chosen[j].end());
  }

  Bytes out;
  append(out, m);
  append(out, settings.s);
  out.push_back(std::byte{8});
  append_varint(out, settings.block);
  for (const unsigned q : scales) out.push_back(static_cast<std::byte>(q));
  const Bytes positions = positions_of(sent, total);
  out.insert(out.end(), positions.begin(), positions.end());

  for (std::size_t e = 0; e < n; ++e) {
    float x = 0;
    if (std::ranges::binary_search(sent, e)) {
      x = std::copysign(scaled(m, scales[e / settings.block]), total[e]);
    }
    residual[e] = kept_of(residual[e], input[e], x, settings.lead);
  }
  return out;
}

// --- Known answers

struct KnownAnswer {
  const char* text;
  Floats input;
  std::vector<int> payload;
  Floats decoded;
  Floats residual;
};

Floats padded(Floats values, std::size_t n) {
  values.resize(n, 0.0F);
  return values;
}

TEST(ThreeLcBlocks, KnownAnswers) {
  Floats two_blocks(66, 0.0F);
  two_blocks[3] = -8;
  two_blocks[64] = 1;
  const std::vector<KnownAnswer> answers{
      // Mean 2, limit 2 * 4/3: 4 alone is sent, so m is 4. A one bit for gap 0, a zero for +.
      {"3lc:s=1,block=64,lead=1",
       {4, -2, 1, 1},
       {0, 0, 0x80, 0x40, 0, 0, 0x80, 0x3F, 8, 64, 0, 1, 0, 1},
       {4, 0, 0, 0},
       {0, -2, 1, 1}},
      // The same T; what counted twice is taken back: sent and residual are the input.
      {"3lc:s=1,block=64,lead=2",
       {2, -1, .5F, .5F},
       {0, 0, 0x80, 0x40, 0, 0, 0x80, 0x3F, 8, 64, 0, 1, 0, 1},
       {4, 0, 0, 0},
       {-2, -1, .5F, .5F}},
      // Equal values do not reach 4/3 of their mean, but are the largest. m = 2; + - in 11 01 bits.
      {"3lc:s=1,block=64,lead=1",
       {2, -2},
       {0, 0, 0, 0x40, 0, 0, 0x80, 0x3F, 8, 64, 0, 2, 0, 0x0D},
       {2, -2},
       {0, 0}},
      // Means of what is sent are 8 and 1, three octaves lower: scales 0 and 24. Gaps 3 and 60:
      // k = 4, bits 1 1100 1, 000 1 0011 0.
      {"3lc:s=1,block=64,lead=1",
       two_blocks,
       {0, 0, 0, 0x41, 0, 0, 0x80, 0x3F, 8, 64, 0, 24, 2, 4, 0x27, 0x32},
       two_blocks,
       Floats(66, 0.0F)},
      // Nothing to send.
      {"3lc",
       padded({}, 3),
       {0, 0, 0, 0, 0, 0, 0xA0, 0x3F, 8, 0x80, 2, 255, 0, 0},
       {0, 0, 0},
       {0, 0, 0}},
      {"3lc", {}, {0, 0, 0, 0, 0, 0, 0xA0, 0x3F, 8, 0x80, 2, 0, 0}, {}, {}},
  };
  for (const KnownAnswer& answer : answers) {
    SCOPED_TRACE(testing::Message() << answer.text << ", " << answer.input.size() << " values");
    const auto encoder = make_codec(answer.text)->make_encoder(answer.input.size());
    Bytes out;
    const Encoded encoded = encoder->encode(answer.input, 0, out);
    EXPECT_EQ(encoded.codec, CodecId::kThreeLc);
    EXPECT_FALSE(encoded.not_finite);
    EXPECT_EQ(out, bytes_of(answer.payload));
    EXPECT_EQ(bits_of(encoder->residual()), bits_of(answer.residual));
    Floats decoded(answer.input.size(), 7);
    decode(CodecId::kThreeLc, out, decoded);
    EXPECT_EQ(bits_of(decoded), bits_of(answer.decoded));
  }
}

// --- Against the plain encoder

class ThreeLcBlocksTargets : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Targets, ThreeLcBlocksTargets, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

void expect_as_plain(const Floats& input, const Settings& settings, ThreadPool* pool,
                     std::size_t offset = 0) {
  const std::size_t n = input.size();
  SCOPED_TRACE(testing::Message() << settings.text() << ", " << n << " values +" << offset);
  const auto codec = make_codec(settings.text());
  const auto encoder = codec->make_encoder(n);
  Floats memory(offset);
  memory.insert(memory.end(), input.begin(), input.end());
  Floats residual(n, 0.0F);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Bytes expected = encode_plainly(input, residual, settings);
    Bytes out;
    encoder->encode(std::span(memory).subspan(offset), step, out, pool);
    ASSERT_EQ(out, expected) << "step " << step;
    ASSERT_EQ(bits_of(encoder->residual()), bits_of(residual)) << "step " << step;
    ASSERT_LE(out.size(), codec->max_encoded_bytes(n));
  }
}

TEST_P(ThreeLcBlocksTargets, EveryShortLength) {
  const ForcedTarget forced(GetParam());
  for (const Settings& settings : {Settings{1.25F, 64, 1.5625F}, Settings{1, 64, 1},
                                   Settings{1.75F, 128, 3}, Settings{6.5F, 256, 1}}) {
    for (std::size_t n = 0; n < 140; ++n) {
      expect_as_plain(heavy_tailed(n, static_cast<unsigned>(n)), settings, nullptr, n % 4);
    }
    for (const std::size_t n : {191U, 192U, 193U, 255U, 256U, 257U, 511U, 513U, 1000U}) {
      expect_as_plain(heavy_tailed(n, static_cast<unsigned>(n)), settings, nullptr);
    }
  }
}

TEST_P(ThreeLcBlocksTargets, LongBlocksAndThreads) {
  const ForcedTarget forced(GetParam());
  constexpr std::size_t kElems = 200'003;
  Floats uneven = heavy_tailed(kElems, 5);
  for (std::size_t e = 0; e < kElems; ++e) {
    uneven[e] = std::ldexp(uneven[e], -static_cast<int>(e / 3000));
  }
  for (const std::size_t threads : {1U, 3U}) {
    ThreadPool pool(threads);
    expect_as_plain(heavy_tailed(kElems, 6), {1.25F, 256, 1.5625F}, &pool);
    expect_as_plain(uneven, {1.75F, 64, 3.0625F}, &pool);
    expect_as_plain(uneven, {1, 4096, 1}, &pool, 1);
  }
}

TEST(ThreeLcBlocks, OddValues) {
  const Settings settings{1.25F, 64, 1};
  const auto with = [&](const Floats& values) { expect_as_plain(values, settings, nullptr); };
  with(Floats(300, 0.0F));
  with(Floats(300, -0.0F));
  with(Floats(300, 0.1F));
  with(Floats(300, kDenormal));
  with(Floats(300, -kLargest / 4));
  Floats huge = heavy_tailed(700, 3);
  huge[333] = 1e30F;
  with(huge);
  Floats one(700, 0.0F);
  one[699] = -kDenormal;
  with(one);
  for (unsigned seed = 0; seed < 30; ++seed) {
    Floats values = odd_values(500, seed);
    for (float& value : values) value /= 4;  // three steps of T stay finite
    with(values);
  }
}

// Values of random sizes, blocks, multipliers and leads.
TEST(ThreeLcBlocks, RandomSettings) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 200; ++round) {
    const auto number = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
    const Settings settings{.s = static_cast<float>(100 + number(1400)) / 100,
                            .block = 64 * (1 + std::size_t{number(64)}),
                            .lead = static_cast<float>(40 + number(2500)) / 40};
    Floats input = heavy_tailed(number(5000), static_cast<unsigned>(random()));
    for (float& value : input) {
      if (number(8) == 0) value = std::ldexp(value, static_cast<int>(number(60)) - 40);
    }
    expect_as_plain(input, settings, nullptr, number(4));
  }
}

// --- Properties

TEST(ThreeLcBlocks, SameEverywhere) {
  for (const char* text : {"3lc", "3lc:s=1,block=64", "3lc:block=4096,s=2", "3lc:ef=off"}) {
    for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 255U, 256U, 257U, 4095U, 4097U, 130'001U}) {
      expect_same_everywhere(text, heavy_tailed(n, static_cast<unsigned>(n)));
    }
  }
}

TEST(ThreeLcBlocks, NoPayloadIsLongerThanItsBound) {
  for (const std::size_t n : {1U, 3U, 63U, 64U, 65U, 255U, 256U, 257U, 5000U}) {
    for (const char* text : {"3lc:s=1", "3lc:s=1,block=64", "3lc:s=1,block=4096"}) {
      const auto codec = make_codec(text);
      // All of a block are its largest, so all are sent: two bits each.
      Bytes out;
      codec->make_encoder(n)->encode(Floats(n, -0.5F), 0, out);
      EXPECT_GE(out.size(), n / 4);
      EXPECT_LE(out.size(), codec->max_encoded_bytes(n)) << text << ", " << n;
      for (unsigned seed = 0; seed < 20; ++seed) {
        out.clear();
        codec->make_encoder(n)->encode(odd_values(n, seed), 0, out);
        EXPECT_LE(out.size(), codec->max_encoded_bytes(n)) << text << ", " << n;
      }
    }
  }
}

// Over many steps what was sent and what is kept are what came in, but for rounding.
TEST(Lead, NothingIsLost) {
  constexpr std::size_t kElems = 3001;
  for (const char* text : {"3lc", "3lc:lead=1", "3lc:s=1.75", "3lc:s=4,lead=16",
                           "3lc:mode=paper,lead=3", "adacomp:lead=2.5", "local-selection:lead=4",
                           "dryden:lead=8", "topk:lead=1.5", "mqe1bit:lead=2", "signsgd:lead=2"}) {
    const auto encoder = make_codec(text)->make_encoder(kElems);
    std::vector<double> came(kElems);
    std::vector<double> went(kElems);
    for (std::uint64_t step = 0; step < 40; ++step) {
      const Floats input = heavy_tailed(kElems, static_cast<unsigned>(step));
      Bytes payload;
      const Encoded encoded = encoder->encode(input, step, payload);
      Floats sent(kElems);
      decode(encoded.codec, payload, sent);
      for (std::size_t e = 0; e < kElems; ++e) {
        came[e] += double{input[e]};
        went[e] += double{sent[e]};
      }
    }
    double worst = 0;
    double largest = 0;
    for (std::size_t e = 0; e < kElems; ++e) {
      worst = std::max(worst, std::fabs(came[e] - went[e] - double{encoder->residual()[e]}));
      largest = std::max(largest, std::fabs(went[e]));
    }
    EXPECT_GT(largest, 0) << text;
    EXPECT_LT(worst, largest * 1e-5) << text;
  }
}

// What is left of a tensor never grows while nothing comes in, and drains: also with a last block
// of one value, and blocks of values that are all alike beside others that are not.
TEST(ThreeLcBlocks, WhatIsLeftDrains) {
  const auto norm_of = [](std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * double{value};
    return std::sqrt(sum);
  };
  for (const char* text : {"3lc", "3lc:s=1.75", "3lc:s=1.75,block=64", "3lc:s=4"}) {
    for (const std::size_t n : {7U, 65U, 257U, 700U}) {
      for (unsigned seed = 0; seed < 10; ++seed) {
        const auto encoder = make_codec(text)->make_encoder(n);
        Floats input = heavy_tailed(n, seed);
        if (seed % 2 == 1) std::fill(input.begin(), input.begin() + 5, 0.1F);
        if (n == 700) std::fill(input.begin() + 256, input.begin() + 512, 0.01F);
        Bytes out;
        encoder->encode(input, 0, out);
        const double begun = norm_of(encoder->residual());
        double before = begun;
        for (std::uint64_t step = 1; step < 300; ++step) {
          out.clear();
          encoder->encode(Floats(n, 0.0F), step, out);
          const double now = norm_of(encoder->residual());
          ASSERT_LE(now, before * (1 + 1e-6)) << text << ", " << n << " values, step " << step;
          before = now;
        }
        EXPECT_LE(before, begun * 1e-3) << text << ", " << n << " values, seed " << seed;
      }
    }
  }
}

// What counts twice is sent earlier: less waits in the residual.
TEST(Lead, SendsEarlier) {
  for (const char* name : {"3lc:s=1.75,", "topk:"}) {
    std::array<double, 2> waiting{};
    for (const std::size_t i : {0U, 1U}) {
      const auto codec = make_codec(std::string(name) + (i == 0 ? "lead=1" : "lead=3"));
      const auto encoder = codec->make_encoder(5000);
      const Floats steady = heavy_tailed(5000, 1);
      for (std::uint64_t step = 0; step < 100; ++step) {
        Bytes payload;
        encoder->encode(steady, step, payload);
      }
      // In steps of input, for what comes again and again.
      for (std::size_t e = 0; e < steady.size(); ++e) {
        waiting.at(i) += std::max(0.0, double{encoder->residual()[e]} / double{steady[e]});
      }
    }
    EXPECT_LT(waiting[1], waiting[0]) << name;
  }
}

TEST(Lead, OfOneIsTheSameEverywhere) {
  const Floats input = heavy_tailed(5000, 1);
  for (const char* name : {"adacomp", "local-selection", "dryden", "topk", "mqe1bit", "signsgd"}) {
    expect_same_everywhere(without_lead(name), input);
  }
}

TEST(Lead, WhatItMakesInfiniteTravelsAsItIs) {
  for (const char* text : {"3lc:lead=4", "topk:lead=4", "adacomp:lead=4", "signsgd:lead=4"}) {
    const auto encoder = make_codec(text)->make_encoder(200);
    Bytes out;
    encoder->encode(heavy_tailed(200, 1), 0, out);
    const auto residual = bits_of(encoder->residual());
    Floats input = heavy_tailed(200, 2);
    input[150] = kLargest / 2;
    out.clear();
    const Encoded encoded = encoder->encode(input, 1, out);
    EXPECT_EQ(encoded.codec, CodecId::kFp32) << text;
    EXPECT_TRUE(encoded.not_finite) << text;
    ASSERT_EQ(out.size(), 800U);
    EXPECT_EQ(std::memcmp(out.data(), input.data(), out.size()), 0) << text;
    EXPECT_EQ(bits_of(encoder->residual()), residual) << text;
  }
}

TEST(ThreeLcBlocks, WhatIsNotFiniteTravelsAsItIs) {
  expect_raw_where_not_finite("3lc");
  expect_raw_where_not_finite("3lc:block=64,s=3");
}

TEST(ThreeLcBlocks, TheLargestFloatsStayFinite) {
  for (const char* text : {"3lc:lead=1,s=1,block=64", "3lc:lead=1,s=15,block=128"}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      Floats input(300);
      for (float& value : input) {
        value =
            random() % 3 == 0 ? kLargest : -kLargest * 0x1p-8F * static_cast<float>(random() % 256);
      }
      const auto encoder = make_codec(text)->make_encoder(input.size());
      Bytes out;
      ASSERT_FALSE(encoder->encode(input, 0, out).not_finite);
      Floats sent(input.size());
      decode(CodecId::kThreeLc, out, sent);
      EXPECT_TRUE(std::ranges::all_of(sent, [](float x) { return std::isfinite(x); }));
      EXPECT_TRUE(std::ranges::any_of(sent, [](float x) { return x != 0; }));
      EXPECT_TRUE(
          std::ranges::all_of(encoder->residual(), [](float r) { return std::isfinite(r); }));
    }
  }
}

// --- Damage

TEST(ThreeLcBlocks, DamagedPayloadsAreRefusedOrDecoded) {
  const Floats input = heavy_tailed(333, 6);
  Bytes payload;
  make_codec("3lc:block=64")->make_encoder(input.size())->encode(input, 0, payload);
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * payload.size(); ++bit) {
    Bytes damaged = payload;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto check = [&] { check_payload(CodecId::kThreeLc, damaged, input.size()); };
    if (fails_with(ErrorCode::kDataLoss, check)) {
      expect_rejected(CodecId::kThreeLc, damaged, input.size());
      ++refused;
      continue;
    }
    Floats out(input.size());
    EXPECT_NO_THROW(decode(CodecId::kThreeLc, damaged, out)) << "bit " << bit;
  }
  EXPECT_GT(refused, 0U);
}

TEST(ThreeLcBlocks, CutPayloadsAreRefused) {
  const Floats input = heavy_tailed(1000, 6);
  Bytes payload;
  make_codec("3lc:block=64")->make_encoder(input.size())->encode(input, 0, payload);
  for (std::size_t bytes = 0; bytes < payload.size(); ++bytes) {
    const auto end = payload.begin() + static_cast<std::ptrdiff_t>(bytes);
    expect_rejected(CodecId::kThreeLc, Bytes(payload.begin(), end), input.size());
  }
  payload.push_back(std::byte{0});
  expect_rejected(CodecId::kThreeLc, payload, input.size());
}

}  // namespace
}  // namespace tersewire::test
