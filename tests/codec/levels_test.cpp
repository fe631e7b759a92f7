// Codec levels: bytes worked by hand, what comes back, and what must never happen. The malformed
// payloads are qsgd's as well: one function reads both.
#include <gtest/gtest.h>

#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;
using Sums = std::vector<std::int32_t>;

constexpr std::size_t kLengths[] = {0,  1,  3,  4,  5,   8,   9,    16,   17,  31,
                                    40, 41, 63, 64, 128, 511, 1023, 1025, 5000};

Bytes levels_of(const Sums& sums, std::uint32_t workers, const Floats& scalers,
                std::uint64_t bucket, bool dense) {
  Bytes out;
  append_levels(sums, workers, scalers, bucket, dense, out);
  return out;
}

void append(Bytes& out, std::uint64_t word) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::byte>(word >> 8 * i));
}

TEST(Levels, AreFieldsOfBits) {
  // Levels plus 3 in three bits each: 0 + 3 * 8 + 6 * 64 + 4 * 512 = 0x998.
  const Bytes payload = levels_of({-3, 0, 3, 1}, 3, {1.5F}, 0, false);
  EXPECT_EQ(payload, bytes_of({0, 3, 0, 0, 0xC0, 0x3F, 0x98, 0x09}));
  EXPECT_EQ(bits_of(decoded(CodecId::kLevels, payload, 4)), bits_of(Floats{-1.5F, 0, 1.5F, 0.5F}));
}

TEST(Levels, AreDigitsOfWords) {
  // Levels plus 1 are the digits 2, 0 and 1, the padding is 37 ones: in base 3 that is
  // 2 + 9 + (3^40 - 3^3) / 2.
  constexpr std::uint64_t kThreeTo40 = 12157665459056928801ULL;
  const Bytes payload = levels_of({1, -1, 0}, 1, {2.0F}, 0, true);
  Bytes expected = bytes_of({1, 1, 0, 0, 0, 0x40});
  append(expected, 11 + (kThreeTo40 - 27) / 2);
  EXPECT_EQ(payload, expected);
  EXPECT_EQ(bits_of(decoded(CodecId::kLevels, payload, 3)), bits_of(Floats{2, -2, 0}));
}

TEST(Levels, HaveAScalerForEachBucket) {
  const Bytes payload = levels_of({2, -1, 1}, 2, {4, 8}, 2, false);
  // 4 + 1 * 8 + 3 * 64 = 0xCC.
  EXPECT_EQ(payload, bytes_of({2, 2, 2, 0, 0, 0x80, 0x40, 0, 0, 0, 0x41, 0xCC, 0}));
  EXPECT_EQ(decoded(CodecId::kLevels, payload, 3), (Floats{4, -2, 4}));
}

TEST(Levels, OfNothing) {
  EXPECT_EQ(levels_of({}, 5, {0}, 0, false), bytes_of({0, 5, 0, 0, 0, 0}));
  EXPECT_EQ(levels_of({}, 5, {}, 7, true), bytes_of({3, 5, 7}));
}

TEST(Levels, LeaveWhatIsZeroUntouched) {
  for (const bool dense : {false, true}) {
    const Bytes payload = levels_of({0, 1, 0}, 1, {2}, 0, dense);
    Floats out{-0.0F, 1, kLargest};
    decode_add(CodecId::kLevels, payload, -3, out);
    EXPECT_EQ(bits_of(out), bits_of(Floats{-0.0F, -5, kLargest}));
    decode_add(CodecId::kLevels, payload, kInfinity, out);
    EXPECT_EQ(bits_of(out), bits_of(Floats{-0.0F, kInfinity, kLargest}));
  }
}

// 127 times the 127th part of the largest float would be infinite.
TEST(Levels, KeepTheLargestScalerFinite) {
  const Bytes payload = levels_of({127, -127}, 127, {kLargest}, 0, false);
  EXPECT_EQ(Bytes(payload.begin() + 2, payload.begin() + 6), bytes_of({0xFE, 0xFF, 0x7F, 0x7F}));
  const Floats out = decoded(CodecId::kLevels, payload, 2);
  EXPECT_NEAR(out[0] / kLargest, 1, 1e-6);
  EXPECT_NEAR(out[1] / kLargest, -1, 1e-6);
}

TEST(Levels, OfAnyNumberOfWorkersComeBack) {
  std::mt19937 random(3);
  for (const std::uint32_t workers :
       {1U, 2U, 3U, 4U, 7U, 8U, 100U, 127U, 128U, 255U, 256U, 500U, 32767U, 32768U, 65535U}) {
    for (const std::size_t n : kLengths) {
      const auto most = static_cast<std::int32_t>(workers);
      Sums sums(n);
      for (auto& sum : sums) sum = std::uniform_int_distribution(-most, most)(random);
      const auto bytes_of_both = [&](bool dense) {
        const Bytes payload = levels_of(sums, workers, {0.75F}, 0, dense);
        const Floats out = decoded(CodecId::kLevels, payload, n);
        std::size_t wrong = 0;
        const float step = 0.75F / static_cast<float>(workers);
        for (std::size_t e = 0; e < n; ++e) {
          wrong += out[e] == static_cast<float>(sums[e]) * step ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0U) << workers << " workers, " << n << " values, dense " << dense;
        return payload.size();
      };
      EXPECT_GT(bytes_of_both(false) + bytes_of_both(true), 0U);
    }
  }
}

TEST(Levels, RefuseWhatTheyCannotSay) {
  Bytes out = bytes_of({7});
  const auto refuses = [&](const Sums& sums, std::uint32_t workers, const Floats& scalers,
                           std::uint64_t bucket) {
    const bool refused = fails_with(ErrorCode::kInvalidArgument, [&] {
      append_levels(sums, workers, scalers, bucket, false, out);
    });
    return refused && out == bytes_of({7});
  };
  EXPECT_TRUE(refuses({0}, 0, {1}, 0));
  EXPECT_TRUE(refuses({0}, 65536, {1}, 0));
  EXPECT_TRUE(refuses({3}, 2, {1}, 0));
  EXPECT_TRUE(refuses({0, -3}, 2, {1}, 0));
  EXPECT_TRUE(refuses({std::numeric_limits<std::int32_t>::min()}, 65535, {1}, 0));
  EXPECT_TRUE(refuses({0}, 2, {}, 0));
  EXPECT_TRUE(refuses({0, 0, 0}, 2, {1}, 2));
  EXPECT_TRUE(refuses({0}, 2, {1}, (std::uint64_t{1} << 40) + 1));
  for (const float bad : {kInfinity, std::nanf(""), -1.0F, -0.0F}) {
    EXPECT_TRUE(refuses({0}, 2, {bad}, 0));
  }
  EXPECT_FALSE(refuses({-2, 2, 0}, 2, {1, 0}, 2));
}

TEST(Levels, AreMadeByNoText) {
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [] { make_codec("levels"); }));
  EXPECT_EQ(codec_name(CodecId::kLevels), "levels");
  const auto said = payload_parameters(CodecId::kLevels, levels_of({0, 0}, 300, {1}, 2, true));
  ASSERT_EQ(said.size(), 3U);
  EXPECT_EQ(said[0].value + " " + said[1].value + " " + said[2].value, "300 2 on");
}

TEST(Levels, MalformedHeadsAreRejected) {
  const auto expect_bad = [](const std::vector<int>& head, const std::vector<int>& body) {
    Bytes payload = bytes_of(head);
    for (const int byte : {0, 0, 0x80, 0x3F}) payload.push_back(static_cast<std::byte>(byte));
    for (const int byte : body) payload.push_back(static_cast<std::byte>(byte));
    expect_rejected(CodecId::kLevels, payload, 2);
  };
  EXPECT_EQ(levels_of({0, 0}, 3, {1}, 0, false), bytes_of({0, 3, 0, 0, 0x80, 0x3F, 0x1B}));
  for (int bit = 2; bit < 8; ++bit) expect_bad({1 << bit, 3}, {0x1B});
  expect_bad({0, 0}, {0});
  expect_bad({0, 0x80, 0x80, 4}, {0, 0, 0, 0, 0});                 // 65536
  expect_bad({0, 0x83, 0}, {0x1B});                                // overlong
  expect_bad({2, 3, 0}, {0x1B});                                   // a bucket of none
  expect_bad({2, 3, 0x81, 0x80, 0x80, 0x80, 0x80, 0x20}, {0x1B});  // 2^40 + 1
  expect_bad({2, 3, 1}, {0x1B});                                   // the second scaler is missing
  for (Bytes cut = levels_of({}, 5, {1}, 0, false); !cut.empty();) {
    cut.pop_back();
    expect_rejected(CodecId::kLevels, cut, 0);
  }
}

TEST(Levels, MalformedScalersAndBodiesAreRejected) {
  for (const bool dense : {false, true}) {
    const Bytes good = levels_of(Sums(90, 1), 2, {1, 1, 1}, 33, dense);
    check_payload(CodecId::kLevels, good, 90);
    for (const std::size_t elems : {0U, 66U, 140U}) {
      expect_rejected(CodecId::kLevels, good, elems);
    }
    Bytes bad = good;
    bad.push_back(std::byte{0});
    expect_rejected(CodecId::kLevels, bad, 90);
    bad.resize(good.size() - 1);
    expect_rejected(CodecId::kLevels, bad, 90);
    for (const float scaler : {kInfinity, std::nanf(""), -1.0F, -0.0F}) {
      for (const std::size_t bucket : {0U, 2U}) {
        bad = good;
        std::memcpy(bad.data() + 3 + bucket * sizeof(scaler), &scaler, sizeof(scaler));
        expect_rejected(CodecId::kLevels, bad, 90);
      }
    }
  }
}

TEST(Levels, MalformedFieldsAreRejected) {
  // Five fields of three bits each; 5 and above are no levels of two workers.
  const Bytes good = levels_of({0, 0, 0, 0, 0}, 2, {1}, 0, false);
  for (const int code : {5, 6, 7}) {
    Bytes bad = good;
    bad[6] = static_cast<std::byte>((2 | code << 3 | 2 << 6) & 255);
    expect_rejected(CodecId::kLevels, bad, 5);
  }
  Bytes bad = good;
  bad[7] |= std::byte{0x80};
  expect_rejected(CodecId::kLevels, bad, 5);
  // In the middle of a long one.
  bad = levels_of(Sums(5000, 0), 2, {1}, 0, false);
  bad[1000] = std::byte{0xFF};
  expect_rejected(CodecId::kLevels, bad, 5000);
}

TEST(Levels, MalformedWordsAreRejected) {
  constexpr std::uint64_t kFiveTo27 = 7450580596923828125ULL;
  const Bytes good = levels_of(Sums(30, 0), 2, {1}, 0, true);
  ASSERT_EQ(good.size(), 22U);
  const auto with_word = [&](std::size_t word, std::uint64_t value) {
    Bytes payload = good;
    std::memcpy(payload.data() + 6 + 8 * word, &value, sizeof(value));
    return payload;
  };
  check_payload(CodecId::kLevels, with_word(0, kFiveTo27 - 1), 30);
  for (const std::size_t word : {0U, 1U}) {
    expect_rejected(CodecId::kLevels, with_word(word, kFiveTo27), 30);
    expect_rejected(CodecId::kLevels, with_word(word, ~std::uint64_t{0}), 30);
  }
  // The second word has three levels; what is behind them must be 2 (level 0).
  std::uint64_t last;
  std::memcpy(&last, good.data() + 14, sizeof(last));
  check_payload(CodecId::kLevels, with_word(1, last - 25), 30);
  expect_rejected(CodecId::kLevels, with_word(1, last - 125), 30);
  expect_rejected(CodecId::kLevels, with_word(1, last + kFiveTo27 / 5), 30);
}

}  // namespace
}  // namespace tersewire
