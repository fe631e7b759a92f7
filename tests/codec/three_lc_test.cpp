// Codec 3lc as published (mode=paper): bytes worked by hand, a plain encoder to compare with, and
// what must never happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/simd.h"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// Not inlined: gcc would take the pair of malloc and delete for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tersewire {
namespace {

using Floats = std::vector<float>;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Bytes bytes_of(const std::vector<int>& values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

template <typename T>
void append(Bytes& out, const T& value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), raw.begin(), raw.end());
}

// Bit patterns: -0 is not 0, and NaN is NaN.
std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

struct Layout {
  bool partitions = false;
  bool zero_runs = true;

  [[nodiscard]] std::string text() const {
    return std::string(",layout=") + (partitions ? "partitions" : "neighbours") +
           (zero_runs ? "" : ",zre=off");
  }
  [[nodiscard]] std::uint8_t byte() const {
    return static_cast<std::uint8_t>((partitions ? 1 : 0) | (zero_runs ? 2 : 0));
  }
};

const std::array<Layout, 4> kLayouts{{{false, true}, {true, true}, {false, false}, {true, false}}};

std::shared_ptr<const Codec> codec_of(float s, const Layout& layout) {
  return make_codec("3lc:mode=paper,s=" + std::to_string(s) + layout.text());
}

void append_run(Bytes& out, std::uint64_t run) {
  for (; run >= 14; run -= 14) out.push_back(std::byte{255});
  if (run > 0) out.push_back(static_cast<std::byte>(run == 1 ? 121 : run + 241));
}

// The whole of the specification, one value at a time. Updates the residual.
Bytes encode_plainly(const Floats& input, Floats& residual, float s, const Layout& layout) {
  const std::size_t n = input.size();
  float largest = 0;
  for (std::size_t e = 0; e < n; ++e) {
    residual[e] += input[e];
    largest = std::max(largest, std::fabs(residual[e]));
  }
  const float m = std::min(largest * s, kLargest);
  std::vector<unsigned> digits(n, 1);
  for (std::size_t e = 0; e < n; ++e) {
    if (m == 0 || 2 * std::fabs(double{residual[e]}) < double{m}) continue;
    digits[e] = residual[e] > 0 ? 2 : 0;
    residual[e] -= residual[e] > 0 ? m : -m;
  }
  Bytes out;
  append(out, m);
  append(out, s);
  append(out, layout.byte());
  const std::size_t groups = (n + 4) / 5;
  std::uint64_t run = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    unsigned group = 0;
    for (std::size_t k = 0; k < 5; ++k) {
      const std::size_t e = layout.partitions ? k * groups + g : 5 * g + k;
      group = group * 3 + (e < n ? digits[e] : 1);
    }
    if (layout.zero_runs && group == 121) {
      ++run;
      continue;
    }
    append_run(out, run);
    run = 0;
    out.push_back(static_cast<std::byte>(group));
  }
  append_run(out, run);
  return out;
}

// Heavy-tailed, so that few values reach half the largest.
Floats heavy_tailed(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) {
    const float v = normal(random);
    value = v * v * v * 1e-3F;
  }
  return values;
}

// One value of 1 in each group whose number is listed, zeros elsewhere.
Floats ones_in_groups(std::size_t elems, const std::vector<std::size_t>& groups) {
  Floats values(elems, 0.0F);
  for (const std::size_t group : groups) values.at(group * 5) = 1.0F;
  return values;
}

// --- Known answers

struct KnownAnswer {
  const char* codec;
  Floats input;
  std::vector<int> head;  // m and s; the layout byte and the body follow
  std::vector<int> body;
  Floats residual;
};

TEST(ThreeLc, KnownAnswers) {
  const std::vector<int> ones{0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F};
  const std::vector<KnownAnswer> answers{
      // Digits 2 0 1 1 2, as 2 * 0.5 reaches m: 2*81 + 0*27 + 1*9 + 1*3 + 2 = 176.
      {"3lc:mode=paper", {1, -1, .25F, 0, .5F}, ones, {2, 176}, {0, 0, .25F, 0, -.5F}},
      // Digits 20111, 12|111, padding behind the bar: 162 + 13 = 175 and 81 + 54 + 13 = 148.
      {"3lc:mode=paper", {1, -1, 0, 0, 0, 0, 1}, ones, {2, 175, 148}, Floats(7, 0.0F)},
      // Two groups: elements 0 2 4 6 | and 1 3 5 | |: 2 1 1 2 1 = 205 and 0 1 1 1 1 = 40.
      {"3lc:mode=paper,layout=partitions",
       {1, -1, 0, 0, 0, 0, 1},
       ones,
       {3, 205, 40},
       Floats(7, 0.0F)},
      {"3lc:mode=paper,zre=off",
       Floats(11, 0.0F),
       {0, 0, 0, 0, 0, 0, 0x80, 0x3F},
       {0, 121, 121, 121},
       {}},
      {"3lc:mode=paper",
       Floats(70, -0.0F),
       {0, 0, 0, 0, 0, 0, 0x80, 0x3F},
       {2, 255},
       Floats(70, -0.0F)},
      {"3lc:mode=paper", {}, {0, 0, 0, 0, 0, 0, 0x80, 0x3F}, {2}, {}},
      {"3lc:mode=paper", {-2}, {0, 0, 0, 0x40, 0, 0, 0x80, 0x3F}, {2, 40}, {0}},
      // m = 1.75: digits 2 1 0 1 1 (2 * 0.75 is below m, 2 * 0.875 is not): 162+27+0+3+1 = 193.
      {"3lc:mode=paper,s=1.75",
       {1, .75F, -.875F, 0, 0},
       {0, 0, 0xE0, 0x3F, 0, 0, 0xE0, 0x3F},
       {2, 193},
       {-.75F, .75F, .875F, 0, 0}},
      // 3e38 * 1.75 overflows: m is the largest float. Digits 2 1 | | |: 162 + 40 = 202.
      {"3lc:mode=paper,s=1.75",
       {3e38F, 1e38F},
       {0xFF, 0xFF, 0x7F, 0x7F, 0, 0, 0xE0, 0x3F},
       {2, 202},
       {3e38F - kLargest, 1e38F}},
      // The smallest denormal reaches half of itself.
      {"3lc:mode=paper",
       {std::numeric_limits<float>::denorm_min(), 0},
       {1, 0, 0, 0, 0, 0, 0x80, 0x3F},
       {2, 202},
       {0, 0}},
  };
  for (const KnownAnswer& answer : answers) {
    SCOPED_TRACE(testing::Message() << answer.codec << ", " << answer.input.size() << " values");
    const auto encoder = make_codec(answer.codec)->make_encoder(answer.input.size());
    Bytes out;
    const Encoded encoded = encoder->encode(answer.input, 0, out);
    EXPECT_EQ(encoded.codec, CodecId::kThreeLc);
    EXPECT_FALSE(encoded.not_finite);
    Bytes expected = bytes_of(answer.head);
    const Bytes body = bytes_of(answer.body);
    expected.insert(expected.end(), body.begin(), body.end());
    EXPECT_EQ(out, expected);
    if (!answer.residual.empty()) {
      // A first residual is +0, so a -0 becomes +0 in it.
      Floats residual = answer.residual;
      for (float& value : residual) value += 0.0F;
      EXPECT_EQ(bits_of(encoder->residual()), bits_of(residual));
    }
  }
}

TEST(ThreeLc, RunsOfZeroGroups) {
  struct Run {
    std::size_t groups;
    std::vector<int> bytes;
  };
  const std::vector<Run> runs{{1, {121}},
                              {2, {243}},
                              {13, {254}},
                              {14, {255}},
                              {15, {255, 121}},
                              {28, {255, 255}},
                              {29, {255, 255, 121}},
                              {30, {255, 255, 243}},
                              {141, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 121}},
                              {142, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 243}}};
  const auto codec = make_codec("3lc:mode=paper");
  for (const Run& run : runs) {
    // Digits 2 1 1 1 1 on both sides: 162 + 40 = 202.
    std::vector<int> body{2, 202};
    body.insert(body.end(), run.bytes.begin(), run.bytes.end());
    body.push_back(202);
    // The run between two others, then the same run at the end.
    body.insert(body.end(), run.bytes.begin(), run.bytes.end());
    const std::size_t elems = 5 * (2 * run.groups + 2);
    Bytes out;
    codec->make_encoder(elems)->encode(ones_in_groups(elems, {0, run.groups + 1}), 0, out);
    EXPECT_EQ(Bytes(out.begin() + 8, out.end()), bytes_of(body)) << run.groups;
  }
}

// --- Every target, every number of threads, every layout

class ThreeLcTargets : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    force_simd_target(GetParam());
    ASSERT_EQ(simd_target(), GetParam());
  }
  void TearDown() override { force_simd_target("best"); }
};

INSTANTIATE_TEST_SUITE_P(Targets, ThreeLcTargets, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

// Two steps against the plain encoder; what is sent and what is kept make up the input; decoding
// and adding give what was sent.
void expect_as_plain(const Floats& input, float s, const Layout& layout, ThreadPool* pool) {
  const std::size_t n = input.size();
  const auto codec = codec_of(s, layout);
  const auto encoder = codec->make_encoder(n);
  Floats residual(n, 0.0F);
  for (int step = 0; step < 2; ++step) {
    Floats wanted = residual;
    for (std::size_t e = 0; e < n; ++e) wanted[e] += input[e];
    const Bytes expected = encode_plainly(input, residual, s, layout);
    Bytes out = bytes_of({1, 2, 3});  // encode() appends
    encoder->encode(input, 0, out, pool);
    out.erase(out.begin(), out.begin() + 3);
    ASSERT_EQ(out, expected) << n << " values, step " << step;
    ASSERT_EQ(bits_of(encoder->residual()), bits_of(residual));
    ASSERT_LE(out.size(), codec->max_encoded_bytes(n));

    Floats sent(n, 42.0F);
    decode(CodecId::kThreeLc, out, sent, pool);
    Floats sum = input;
    decode_add(CodecId::kThreeLc, out, 0.3F, sum, pool);
    float m = 0;
    std::memcpy(&m, out.data(), sizeof(m));
    const float product = 0.3F * m;
    std::size_t wrong = 0;
    for (std::size_t e = 0; e < n; ++e) {
      const float added = sent[e] == 0 ? 0.0F : std::copysign(product, sent[e]);
      wrong += double{sent[e]} + double{residual[e]} != double{wanted[e]} ? 1 : 0;
      wrong += sum[e] != input[e] + added ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0U);
  }
}

TEST_P(ThreeLcTargets, EveryShortLength) {
  for (const Layout& layout : kLayouts) {
    for (std::size_t n = 0; n < 400; n += n < 90 ? 1 : 13) {
      expect_as_plain(heavy_tailed(n, static_cast<unsigned>(n)), 1.0F, layout, nullptr);
    }
  }
}

// Long enough for three threads.
constexpr std::size_t kThreadedElems = 170'003;

TEST_P(ThreeLcTargets, ThreadsAndDensities) {
  const Floats sparse = heavy_tailed(kThreadedElems, 5);
  Floats dense(kThreadedElems);
  for (std::size_t e = 0; e < dense.size(); ++e) dense[e] = static_cast<float>(e % 7) - 3.0F;
  for (const std::size_t threads : {1U, 2U, 3U}) {
    ThreadPool pool(threads);
    for (const Layout& layout : kLayouts) {
      expect_as_plain(sparse, 1.0F, layout, &pool);
      expect_as_plain(dense, 1.75F, layout, &pool);
    }
  }
}

TEST_P(ThreeLcTargets, RunsAcrossThreads) {
  constexpr std::size_t kLast = (kThreadedElems - 1) / 5;
  const std::vector<std::vector<std::size_t>> cases{
      {}, {0}, {kLast}, {0, kLast}, {16'383}, {16'384}, {16'000, 32'768}, {16'385, 32'767}};
  for (const std::size_t threads : {2U, 3U}) {
    ThreadPool pool(threads);
    for (const auto& groups : cases) {
      const Floats input = ones_in_groups(kThreadedElems, groups);
      expect_as_plain(input, 1.0F, {false, true}, &pool);
    }
  }
}

// --- What is not finite

TEST(ThreeLc, WhatIsNotFiniteTravelsAsItIs) {
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity, 3e38F}) {
    const auto encoder = make_codec("3lc:mode=paper")->make_encoder(200);
    Bytes out;
    encoder->encode(heavy_tailed(200, 1), 0, out);
    encoder->residual()[150] = 3e38F;  // with 3e38 more: an infinity
    const auto residual = bits_of(encoder->residual());
    Floats input = heavy_tailed(200, 2);
    input[150] = bad;
    out.clear();
    const Encoded encoded = encoder->encode(input, 0, out);
    EXPECT_EQ(encoded.codec, CodecId::kFp32);
    EXPECT_TRUE(encoded.not_finite);
    ASSERT_EQ(out.size(), 800U);
    EXPECT_EQ(std::memcmp(out.data(), input.data(), out.size()), 0);
    EXPECT_LE(out.size(), make_codec("3lc:mode=paper")->max_encoded_bytes(200));
    EXPECT_EQ(bits_of(encoder->residual()), residual);
  }
}

TEST(ThreeLc, WhatIsNotFiniteIsRejectedOnRequest) {
  const auto encoder = make_codec("3lc:mode=paper,non-finite=reject")->make_encoder(9);
  Bytes out = bytes_of({7});
  try {
    encoder->encode(Floats(9, kInfinity), 0, out);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(out, bytes_of({7}));
  EXPECT_EQ(bits_of(encoder->residual()), bits_of(Floats(9, 0.0F)));
}

// --- Payloads that break the format

void expect_rejected(const Bytes& payload, std::size_t elems) {
  const Floats before = heavy_tailed(elems, 3);
  Floats out = before;
  const auto rejects = [](const std::function<void()>& read) {
    try {
      read();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDataLoss;
    }
    return false;
  };
  EXPECT_TRUE(rejects([&] { decode(CodecId::kThreeLc, payload, out); }));
  EXPECT_TRUE(rejects([&] { decode_add(CodecId::kThreeLc, payload, 1, out); }));
  EXPECT_TRUE(rejects([&] { check_payload(CodecId::kThreeLc, payload, elems); }));
  EXPECT_EQ(bits_of(out), bits_of(before));
}

TEST(ThreeLc, TruncatedAndLengthenedPayloads) {
  for (const Layout& layout : kLayouts) {
    Bytes out;
    codec_of(1, layout)->make_encoder(997)->encode(heavy_tailed(997, 4), 0, out);
    for (std::size_t n = 0; n < out.size(); ++n) {
      expect_rejected(Bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n)), 997);
    }
    expect_rejected(out, 1001);
    expect_rejected(out, 991);
    out.push_back(std::byte{121});
    expect_rejected(out, 997);
  }
}

// m, s, the layout byte and a body.
Bytes payload_of(float m, float s, int layout, const std::vector<int>& body) {
  Bytes out;
  append(out, m);
  append(out, s);
  append(out, static_cast<std::uint8_t>(layout));
  const Bytes tail = bytes_of(body);
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

TEST(ThreeLc, AlteredPayloads) {
  EXPECT_NO_THROW(check_payload(CodecId::kThreeLc, payload_of(1, 1, 2, {202, 121}), 6));
  for (const float m : {-1.0F, -0.0F, kInfinity, std::nanf("")}) {
    expect_rejected(payload_of(m, 1, 2, {202}), 5);
  }
  for (const float s : {0.5F, 2.0F, -1.0F, kInfinity, std::nanf("")}) {
    expect_rejected(payload_of(1, s, 2, {202}), 5);
  }
  for (int layout = 4; layout < 256; ++layout) {
    expect_rejected(payload_of(1, 1, layout, {202}), 5);
  }
  for (int byte = 243; byte < 256; ++byte) {
    expect_rejected(payload_of(1, 1, 0, {202, byte}), 10);
  }
  // Six values need two groups; four digits of the second are padding.
  for (const int padding : {0, 120, 122, 148, 242}) {
    expect_rejected(payload_of(1, 1, 2, {202, padding}), 6);
    expect_rejected(payload_of(1, 1, 0, {202, padding}), 6);
  }
  // By partitions digits 3 and 4 of both groups are padding: 13 is 00111, so 121 + 1 is not
  // allowed.
  EXPECT_NO_THROW(check_payload(CodecId::kThreeLc, payload_of(1, 1, 3, {13, 121}), 6));
  expect_rejected(payload_of(1, 1, 3, {122, 121}), 6);
  expect_rejected(payload_of(1, 1, 3, {121, 124}), 6);
}

// --- Adding

TEST(ThreeLc, AddingLeavesAloneWhatIsZero) {
  for (const std::size_t elems : {std::size_t{5}, std::size_t{2000}}) {
    for (const Layout& layout : kLayouts) {
      // Few values and many: two ways to add.
      for (const std::size_t every : {std::size_t{2}, std::size_t{501}}) {
        Floats input(elems, 0.0F);
        for (std::size_t e = 0; e < elems; e += every) input[e] = 1.0F;
        Bytes out;
        codec_of(1, layout)->make_encoder(elems)->encode(input, 0, out);
        for (const std::uint32_t bits : {0x80000000U, 0x7FC00001U, 0x7F800000U}) {
          std::vector<float> sum(elems);
          for (float& value : sum) std::memcpy(&value, &bits, sizeof(bits));
          decode_add(CodecId::kThreeLc, out, 2.0F, sum);
          const auto found = bits_of(sum);
          for (std::size_t e = 0; e < elems; ++e) {
            // NaN and infinity stay what they are whatever is added.
            ASSERT_EQ(found[e] == bits, input[e] == 0 || bits != 0x80000000U) << e;
          }
        }
      }
    }
  }
}

TEST(ThreeLc, GivingBackRestoresTheSum) {
  for (const Layout& layout : kLayouts) {
    const auto codec = codec_of(1.5F, layout);
    const auto encoder = codec->make_encoder(3001);
    Bytes out;
    for (unsigned step = 0; step < 4; ++step) {
      const Floats input = heavy_tailed(3001, step);
      Floats sum(encoder->residual().begin(), encoder->residual().end());
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += input[e];
      out.clear();
      const Encoded encoded = encoder->encode(input, 0, out);
      encoder->give_back(encoded.codec, out);
      // What was sent whole comes back as +0 where it was -0 before; no other bit differs.
      EXPECT_EQ(Floats(encoder->residual().begin(), encoder->residual().end()), sum);
    }
  }
}

// --- Memory

TEST(ThreeLc, StepsAfterTheFirstAllocateNothing) {
  ThreadPool pool(2);
  for (const Layout& layout : kLayouts) {
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const std::size_t elems = 200'001;
      const Floats input = heavy_tailed(elems, 6);
      const auto encoder = codec_of(1, layout)->make_encoder(elems);
      Floats decoded(elems);
      Bytes out;
      const auto step = [&] {
        out.clear();
        encoder->encode(input, 0, out, threads);
        decode(CodecId::kThreeLc, out, decoded, threads);
        decode_add(CodecId::kThreeLc, out, 0.5F, decoded, threads);
      };
      step();
      const std::size_t before = allocations;
      for (int i = 0; i < 3; ++i) step();
      EXPECT_EQ(allocations, before);
    }
  }
}

}  // namespace
}  // namespace tersewire
