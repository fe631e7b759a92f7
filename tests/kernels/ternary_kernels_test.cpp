// The kernels of ternary digits on every SIMD target, against plain loops.
#include <gtest/gtest.h>

#include "../../src/kernels/kernels.h"
#include "../../src/kernels/scaling.h"
#include "../../src/kernels/stochastic_ternary.h"
#include "../../src/kernels/ternary_pack.h"
#include "../../src/kernels/ternary_unpack.h"
#include "../../src/kernels/ternary_values.h"
#include "codec_test_support.h"

namespace tersewire::kernels {
namespace {

using namespace tersewire::test;

using Words = std::vector<std::uint64_t>;

constexpr std::size_t kWords = kBlockElems / 64 + 1;

bool bit(const std::uint64_t* words, std::size_t i) { return (words[i / 64] >> i % 64 & 1) != 0; }

Words random_bits(unsigned seed) {
  std::mt19937_64 random(seed);
  Words words(kWords);
  for (std::uint64_t& word : words) word = random();
  return words;
}

class TernaryKernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override { force_simd_target("best"); }
};

INSTANTIATE_TEST_SUITE_P(Targets, TernaryKernels, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(TernaryKernels, ValuesOfDigits) {
  const Words sent = random_bits(1);
  const Words negative = random_bits(2);
  for (const std::size_t first : {0U, 1U, 8U, 63U, 64U, 100U}) {
    for (const std::size_t n : {0U, 1U, 3U, 4U, 15U, 16U, 17U, 63U, 64U, 65U, 100U, 1000U}) {
      SCOPED_TRACE(testing::Message() << n << " digits from " << first);
      const TernaryDigits digits{sent.data(), negative.data(), first};
      Floats filled(n + 8, 42.0F);
      Floats streamed(n + 8, 42.0F);
      Floats added(n + 8, -0.0F);
      std::vector<std::int32_t> levels(n + 8, 5);
      fill_ternary(digits, n, 0.25F, filled.data() + 3);
      stream_ternary(digits, n, 0.25F, streamed.data() + 3);
      end_streaming();
      add_ternary(digits, n, 0.25F, added.data() + 3);
      add_ternary_levels(digits, n, levels.data() + 3);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n + 8; ++i) {
        const bool inside = i >= 3 && i < n + 3;
        const std::size_t at = first + i - 3;
        const int digit = !inside || !bit(sent.data(), at) ? 0 : bit(negative.data(), at) ? -1 : 1;
        const float value = 0.25F * static_cast<float>(digit);
        wrong += filled[i] != (inside ? value : 42.0F) ? 1 : 0;
        wrong += streamed[i] != (inside ? value : 42.0F) ? 1 : 0;
        wrong += std::signbit(filled[i]) != (digit < 0) ? 1 : 0;
        wrong += added[i] != value || (digit == 0 && !std::signbit(added[i])) ? 1 : 0;
        wrong += levels[i] != 5 + digit ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0U);
    }
  }
}

TEST_P(TernaryKernels, GroupsComeBack) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    std::array<std::uint8_t, kBlockGroups> groups;
    for (std::size_t g = 0; g < kBlockGroups; ++g) {
      groups[g] = static_cast<std::uint8_t>((g * (2 * seed + 1) + seed) % (kMaxGroup + 1));
    }
    std::array<std::uint64_t, kWords> sent{};
    std::array<std::uint64_t, kWords> negative{};
    unpack_neighbours(groups.data(), sent.data(), negative.data());
    constexpr std::size_t kStride = 6;
    std::array<std::uint64_t, kDigitsPerGroup * kStride> sent_rows{};
    std::array<std::uint64_t, kDigitsPerGroup * kStride> negative_rows{};
    unpack_partitions(groups.data(), kStride, sent_rows.data(), negative_rows.data());
    std::size_t wrong = 0;
    for (std::size_t g = 0; g < kBlockGroups; ++g) {
      unsigned left = groups[g];
      for (std::size_t k = kDigitsPerGroup; k-- > 0; left /= 3) {
        const std::size_t i = g * kDigitsPerGroup + k;
        wrong += bit(sent.data(), i) != (left % 3 != 1) ? 1 : 0;
        wrong += bit(negative.data(), i) != (left % 3 == 0) ? 1 : 0;
        wrong += bit(&sent_rows[k * kStride], g) != bit(sent.data(), i) ? 1 : 0;
        wrong += bit(&negative_rows[k * kStride], g) != bit(negative.data(), i) ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0U);
  }
}

TEST_P(TernaryKernels, PairsComeBack) {
  const Words sent = random_bits(3);
  const Words negative = random_bits(4);
  std::array<std::uint8_t, kBlockElems / 4> pairs;
  pack_pairs(sent.data(), negative.data(), kBlockElems / 32, pairs.data());
  EXPECT_TRUE(are_pairs(pairs.data(), pairs.size()));
  Words sent_back(kWords);
  Words negative_back(kWords);
  unpack_pairs(pairs.data(), kBlockElems / 32, sent_back.data(), negative_back.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kBlockElems; ++i) {
    const bool minus = bit(sent.data(), i) && bit(negative.data(), i);
    const unsigned code = pairs[i / 4] >> 2 * (i % 4) & 3U;
    wrong += code != (!bit(sent.data(), i) ? 0U : minus ? 3U : 1U) ? 1 : 0;
    wrong += bit(sent_back.data(), i) != bit(sent.data(), i) ? 1 : 0;
    wrong += bit(negative_back.data(), i) != minus ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_P(TernaryKernels, FindWhatIsNotAllowedAnywhere) {
  for (const std::size_t n : {1U, 15U, 64U, 65U, 200U}) {
    std::vector<std::uint8_t> bytes(n, 0b11011100);
    EXPECT_TRUE(are_pairs(bytes.data(), n));
    EXPECT_TRUE(all_at_most(bytes.data(), n, 220));
    for (std::size_t at = 0; at < n; ++at) {
      for (const std::uint8_t bad :
           std::to_array<std::uint8_t>({0b10011100, 0b11101100, 0b11011000, 0b11011110})) {
        bytes[at] = bad;
        EXPECT_FALSE(are_pairs(bytes.data(), n));
      }
      bytes[at] = 221;
      EXPECT_FALSE(all_at_most(bytes.data(), n, 220));
      bytes[at] = 0b11011100;
    }
  }
  EXPECT_TRUE(are_pairs(nullptr, 0));
  EXPECT_TRUE(all_at_most(nullptr, 0, 0));
}

TEST_P(TernaryKernels, StochasticQuantization) {
  const Floats values = heavy_tailed(200, 7);
  std::mt19937 random(9);
  std::vector<std::uint32_t> words(values.size());
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  for (const StochasticScale scale :
       {StochasticScale{0.05F, kInfinity}, {3e-3F, 3e-3F}, {1.0F, 1e-3F}, {kLargest, 2e-3F}}) {
    for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 200U}) {
      Floats residual(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
      Words sent(4);
      Words negative(4);
      const bool any = quantize_stochastic(values.data(), residual.data(), n, scale, words.data(),
                                           sent.data(), negative.data());
      const float factor = scaling_factor(scale.scaler);
      bool expected_any = false;
      for (std::size_t i = 0; i < n; ++i) {
        const float t = values[i] + values[i];
        const float u = static_cast<float>(words[i] >> 8) * 0x1p-24F;
        const float bar = u * (scale.scaler * factor);
        const bool is_sent = bar < std::min(std::fabs(t), scale.limit) * factor;
        expected_any |= is_sent;
        ASSERT_EQ(bit(sent.data(), i), is_sent) << i;
        ASSERT_EQ(bit(negative.data(), i), t < 0) << i;
        ASSERT_EQ(residual[i], is_sent ? t - std::copysign(scale.scaler, t) : t) << i;
      }
      EXPECT_EQ(any, expected_any);
      EXPECT_EQ(n % 64 == 0 ? 0 : sent[n / 64] >> n % 64, 0U);
    }
  }
}

TEST(Scaling, IsAPowerOfTwoThatBringsMagnitudesNearOne) {
  EXPECT_EQ(scaling_factor(1.0F), 1.0F);
  EXPECT_EQ(scaling_factor(0.75F), 2.0F);
  EXPECT_EQ(scaling_factor(1024.0F), 0x1p-10F);
  EXPECT_EQ(scaling_factor(kLargest), 0x1p-126F);
  EXPECT_EQ(scaling_factor(0x1p126F), 0x1p-126F);
  EXPECT_EQ(scaling_factor(0x1p-126F), 0x1p126F);
  EXPECT_EQ(scaling_factor(0x1p-127F), 0x1p127F);
  EXPECT_EQ(scaling_factor(kDenormal), 0x1p127F);
}

}  // namespace
}  // namespace tersewire::kernels
