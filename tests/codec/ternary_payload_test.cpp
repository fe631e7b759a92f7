// The payload that codecs terngrad and stoch3 share: what breaks the format, and how it is added.
#include <gtest/gtest.h>

#include "ternary_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr CodecId kTernGrad = CodecId::kTernGrad;
constexpr CodecId kStoch3 = CodecId::kStoch3;

// As expect_rejected(), and levels are not touched either.
void expect_refused(CodecId codec, const Bytes& payload, std::size_t elems) {
  expect_rejected(codec, payload, elems);
  std::vector<std::int32_t> levels(elems, 7);
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss, [&] { decode_levels_add(codec, payload, levels); }));
  EXPECT_EQ(std::ranges::count(levels, 7), static_cast<std::ptrdiff_t>(elems));
}

// A layout byte, other bytes of the head, one scaler and a body.
Bytes payload_of(const std::vector<int>& head, float scaler, const std::vector<int>& body) {
  Bytes out = bytes_of(head);
  append_raw(out, scaler);
  const Bytes tail = bytes_of(body);
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

TEST(TernaryPayload, TruncatedAndLengthened) {
  for (const std::string text : {"terngrad", "terngrad:pack=2bit", "terngrad:pack=base243",
                                 "terngrad:bucket=300", "stoch3"}) {
    const CodecId codec = make_codec(text)->id();
    Bytes payload = encoded(text, heavy_tailed(997, 4));
    for (std::size_t n = 0; n < payload.size(); ++n) {
      expect_refused(codec,
                     Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n)), 997);
    }
    expect_refused(codec, payload, 1001);
    expect_refused(codec, payload, 991);
    payload.push_back(std::byte{0});
    expect_refused(codec, payload, 997);
  }
}

TEST(TernaryPayload, Layouts) {
  for (int layout = 0; layout < 256; ++layout) {
    const bool without_buckets = layout < 3;
    const bool with_buckets = layout >= 4 && layout < 7;
    const Bytes one = payload_of({layout}, 1, {layout == 0 ? 1 : 202});
    const Bytes bucket = payload_of({layout, 1}, 1, {layout == 4 ? 1 : 202});
    if (without_buckets) {
      EXPECT_NO_THROW(check_payload(kTernGrad, one, 1));
    } else {
      expect_refused(kTernGrad, one, 1);
    }
    if (with_buckets) {
      EXPECT_NO_THROW(check_payload(kTernGrad, bucket, 1));
    } else {
      expect_refused(kTernGrad, bucket, 1);
    }
    if (layout != 1) expect_refused(kStoch3, one, 1);
    expect_refused(kStoch3, bucket, 1);
  }
  EXPECT_NO_THROW(check_payload(kStoch3, payload_of({1}, 1, {202}), 1));
}

TEST(TernaryPayload, Buckets) {
  EXPECT_NO_THROW(
      check_payload(kTernGrad, payload_of({5, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}, 1, {202}), 1));
  expect_refused(kTernGrad, payload_of({5, 0}, 1, {202}), 1);
  expect_refused(kTernGrad, payload_of({5, 0x81, 0}, 1, {202}), 1);  // not the shortest
  expect_refused(kTernGrad, payload_of({5, 0x81, 0x80, 0x80, 0x80, 0x80, 0x20}, 1, {202}),
                 1);                                           // 2^40 + 1
  expect_refused(kTernGrad, payload_of({5, 2}, 1, {202}), 3);  // two of them
  // As many scalers as nobody can hold.
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss, [] {
    check_payload(kTernGrad, payload_of({5, 1}, 1, {202}), ~std::size_t{0});
  }));
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss, [] {
    payload_scalers(kTernGrad, payload_of({5, 1}, 1, {202}), ~std::size_t{0});
  }));
  for (const int layout : {0, 1, 2}) {
    EXPECT_TRUE(fails_with(ErrorCode::kDataLoss, [&] {
      check_payload(kTernGrad, payload_of({layout}, 1, {202}), ~std::size_t{0} - 3);
    }));
  }
}

TEST(TernaryPayload, ScalersAreMagnitudes) {
  for (const float bad : {-1.0F, -0.0F, kInfinity, -kInfinity, std::nanf("")}) {
    for (const int layout : {0, 1, 2}) {
      expect_refused(kTernGrad, payload_of({layout}, bad, {layout == 0 ? 1 : 202}), 1);
    }
    expect_refused(kTernGrad, payload_of({5, 1, 0, 0, 0, 0}, bad, {202}), 2);
    expect_refused(kStoch3, payload_of({1}, bad, {202}), 1);
    EXPECT_TRUE(fails_with(ErrorCode::kDataLoss,
                           [&] { payload_scalers(kStoch3, payload_of({1}, bad, {202}), 1); }));
  }
}

TEST(TernaryPayload, TwoBits) {
  EXPECT_NO_THROW(check_payload(kTernGrad, payload_of({0}, 1, {0b11010011, 0b1101}), 6));
  expect_refused(kTernGrad, payload_of({0}, 1, {0b11010010, 0b1101}), 6);
  expect_refused(kTernGrad, payload_of({0}, 1, {0b10010011, 0b1101}), 6);
  expect_refused(kTernGrad, payload_of({0}, 1, {0b11010011, 0b1001}), 6);
  // Behind the last element.
  expect_refused(kTernGrad, payload_of({0}, 1, {0b11010011, 0b00011101}), 6);
  expect_refused(kTernGrad, payload_of({0}, 1, {0b11010011, 0b11001101}), 6);
  // In each byte of a long one.
  for (std::size_t at = 0; at < 80; ++at) {
    std::vector<int> body(80, 0);
    body[at] = at % 2 == 0 ? 0b10 : 0b10000000;
    expect_refused(kTernGrad, payload_of({0}, 1, body), 320);
  }
}

TEST(TernaryPayload, Groups) {
  for (int byte = 243; byte < 256; ++byte) {
    expect_refused(kTernGrad, payload_of({1}, 1, {202, byte}), 10);
    expect_refused(kStoch3, payload_of({1}, 1, {202, byte}), 10);
    EXPECT_NO_THROW(check_payload(kTernGrad, payload_of({2}, 1, {202, byte}),
                                  5 + 5 * static_cast<std::size_t>(byte - 241)));
  }
  // Six values need two groups; four digits of the second are padding.
  for (const int padding : {0, 120, 122, 148, 242}) {
    expect_refused(kTernGrad, payload_of({1}, 1, {202, padding}), 6);
    expect_refused(kTernGrad, payload_of({2}, 1, {202, padding}), 6);
    expect_refused(kStoch3, payload_of({1}, 1, {202, padding}), 6);
  }
  // Zero runs need not be written greedily.
  EXPECT_NO_THROW(check_payload(kTernGrad, payload_of({2}, 1, {121, 121, 243}), 20));
}

TEST(TernaryPayload, AddingLeavesAloneWhatIsZero) {
  constexpr std::size_t kElems = 3001;
  for (const std::string text : {"terngrad:clip=off", "terngrad:clip=off,pack=2bit",
                                 "terngrad:clip=off,bucket=10", "stoch3:clip=off"}) {
    // Few values and many: two ways to add.
    for (const std::size_t every : {2U, 501U}) {
      Floats input(kElems, 0.0F);
      for (std::size_t e = 0; e < kElems; e += every) input[e] = 1.0F;
      const Bytes payload = encoded(text, input);
      for (const float weight : {2.0F, -2.0F, kInfinity}) {
        for (const std::uint32_t bits : {0x80000000U, 0x7FC00001U, 0x7F800000U}) {
          Floats sum(kElems, from_bits(bits));
          decode_add(make_codec(text)->id(), payload, weight, sum);
          const auto found = bits_of(sum);
          for (std::size_t e = 0; e < kElems; ++e) {
            ASSERT_TRUE(input[e] != 0 || found[e] == bits) << text << ", " << e;
          }
          EXPECT_TRUE(bits != 0x80000000U || sum[0] == weight);
        }
      }
    }
  }
}

TEST(TernaryPayload, LevelsAddUpInPlace) {
  for (const std::string text :
       {"terngrad:clip=off", "terngrad:clip=off,pack=2bit", "stoch3:clip=off"}) {
    for (const std::size_t every : {1U, 2U, 300U}) {
      Floats input(2000, 0.0F);
      for (std::size_t e = 0; e < input.size(); e += every) input[e] = e % 3 == 0 ? -1.0F : 1.0F;
      const Bytes payload = encoded(text, input);
      std::vector<std::int32_t> levels(input.size());
      for (std::size_t e = 0; e < levels.size(); ++e)
        levels[e] = static_cast<std::int32_t>(e) - 900;
      decode_levels_add(make_codec(text)->id(), payload, levels);
      std::size_t wrong = 0;
      for (std::size_t e = 0; e < levels.size(); ++e) {
        wrong +=
            levels[e] != static_cast<std::int32_t>(e) - 900 + static_cast<int>(input[e]) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0U) << text;
    }
  }
}

}  // namespace
}  // namespace tersewire
