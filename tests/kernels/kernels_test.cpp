// Every kernel on every SIMD target against plain loops that say what it means, bit for bit.
#include "../../src/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "../../src/kernels/ternary_pack.h"
#include "../../src/kernels/zero_run.h"
#include "tersewire/simd.h"

namespace tersewire::kernels {
namespace {

constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Around every vector length there is, and around words of 64 digits.
const std::vector<std::size_t> kLengths{0,  1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17,  31,
                                        32, 33, 47, 63, 64, 65, 96, 127, 128, 129, 191, 200, 1000};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), [](float v) { return bits_of(v); });
  return bits;
}

// Ordinary values with some of everything odd between.
std::vector<float> odd_values(std::size_t n, unsigned seed) {
  const std::array<float, 10> odd{0.0F,  -0.0F, kDenormal,       -kDenormal, 3 * kDenormal,
                                  0.25F, -0.5F, 1.17549435e-38F, 1e-20F,     -1e-39F};
  std::mt19937 random(seed);
  std::normal_distribution<float> ordinary;
  std::vector<float> values(n);
  for (float& value : values) {
    value = random() % 3 == 0 ? odd.at(random() % odd.size()) : ordinary(random);
  }
  return values;
}

class KernelsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    force_simd_target(GetParam());
    ASSERT_EQ(simd_target(), GetParam());
  }
  void TearDown() override {
    EXPECT_EQ(simd_target(), GetParam());
    force_simd_target("best");
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

// Calls test(n, offset) for every length, and at addresses that are aligned to nothing but a float.
template <typename Test>
void for_lengths(const Test& test) {
  for (const std::size_t n : kLengths) {
    for (const std::size_t offset : {0U, 1U, 3U}) {
      SCOPED_TRACE(testing::Message() << n << " values at offset " << offset);
      test(n, offset);
    }
  }
}

TEST_P(KernelsTest, MaxAbsSumBits) {
  for_lengths([](std::size_t n, std::size_t offset) {
    auto a = odd_values(n + offset, 1);
    auto b = odd_values(n + offset, 2);
    std::uint32_t sums = 0;
    std::uint32_t alone = 0;
    for (std::size_t i = offset; i < n + offset; ++i) {
      sums = std::max(sums, bits_of(std::fabs(a[i] + b[i])));
      alone = std::max(alone, bits_of(std::fabs(a[i])));
    }
    EXPECT_EQ(max_abs_sum_bits(a.data() + offset, b.data() + offset, n), sums);
    EXPECT_EQ(max_abs_sum_bits(a.data() + offset, nullptr, n), alone);
  });
}

TEST_P(KernelsTest, MaxAbsSumBitsFindsWhatIsNotFinite) {
  const std::size_t n = 150;
  for (std::size_t at = 0; at < n; ++at) {
    for (const float bad : {kInfinity, -kInfinity, from_bits(0x7FC00000), from_bits(0xFFC00000)}) {
      std::vector<float> a(n, 1.0F);
      const std::vector<float> b(n, -1.0F);
      a[at] = bad;
      EXPECT_GE(max_abs_sum_bits(a.data(), b.data(), n), kNotFinite);
      EXPECT_GE(max_abs_sum_bits(a.data(), nullptr, n), kNotFinite);
    }
    std::vector<float> large(n, 0.0F);
    large[at] = kLargest;
    EXPECT_LT(max_abs_sum_bits(large.data(), nullptr, n), kNotFinite);
    EXPECT_GE(max_abs_sum_bits(large.data(), large.data(), n), kNotFinite);
  }
}

TEST_P(KernelsTest, AccumulateAndSubtract) {
  for_lengths([](std::size_t n, std::size_t offset) {
    auto target = odd_values(n + offset, 3);
    const auto source = odd_values(n + offset, 4);
    auto expected = target;
    std::uint32_t largest = 0;
    for (std::size_t i = offset; i < n + offset; ++i) {
      expected[i] += source[i];
      largest = std::max(largest, bits_of(std::fabs(expected[i])));
    }
    EXPECT_EQ(accumulate_max_abs_bits(target.data() + offset, source.data() + offset, n), largest);
    EXPECT_EQ(bits_of(target), bits_of(expected));

    subtract_where_above(target.data() + offset, 0.5F, n);
    for (std::size_t i = offset; i < n + offset; ++i) {
      if (std::fabs(expected[i]) >= 0.5F) expected[i] -= 0.5F;
    }
    EXPECT_EQ(bits_of(target), bits_of(expected));
  });
}

void set_bit(std::vector<std::uint64_t>& words, std::size_t i, bool value) {
  words[i / 64] |= std::uint64_t{value} << i % 64;
}

void expect_quantized(const std::vector<float>& input, const std::vector<float>& residual,
                      std::size_t offset, float m) {
  const std::size_t n = input.size() - offset;
  const std::size_t words = (n + 63) / 64;
  std::vector<std::uint64_t> sent(words);
  std::vector<std::uint64_t> negative(words);
  auto rest = residual;
  for (std::size_t i = 0; i < n; ++i) {
    float& left = rest[i + offset];
    const float t = input[i + offset] + left;
    const bool is_sent = 2.0 * std::fabs(double{t}) >= double{m};
    set_bit(sent, i, is_sent);
    set_bit(negative, i, t < 0);
    left = is_sent ? t - (t < 0 ? -m : m) : t;
  }
  constexpr std::uint64_t kGarbage = 0xDEADBEEFDEADBEEF;
  std::vector<std::uint64_t> sent_found(words + 1, kGarbage);
  std::vector<std::uint64_t> negative_found(words + 1, kGarbage);
  auto found = residual;
  const bool any = quantize_ternary(input.data() + offset, found.data() + offset, n, m,
                                    sent_found.data(), negative_found.data());
  EXPECT_EQ(bits_of(found), bits_of(rest));
  EXPECT_EQ(any, std::ranges::any_of(sent, [](std::uint64_t word) { return word != 0; }));
  EXPECT_EQ(sent_found.back(), kGarbage);
  EXPECT_EQ(negative_found.back(), kGarbage);
  sent_found.pop_back();
  negative_found.pop_back();
  EXPECT_EQ(sent_found, sent);
  EXPECT_EQ(negative_found, negative);
}

TEST_P(KernelsTest, QuantizeTernary) {
  for (const float m : {1.0F, 0.7F, 5.0F, 100.0F, kDenormal, 3 * kDenormal, 1.7e-38F, kLargest}) {
    for_lengths([m](std::size_t n, std::size_t offset) {
      auto input = odd_values(n + offset, 5);
      auto residual = odd_values(n + offset, 6);
      // Values at the limit and next to it, of both signs.
      const float half = m / 2;
      const std::array<float, 4> limits{half, std::nextafter(half, 0.0F), m, -half};
      for (std::size_t i = 0; i < input.size(); i += 3) {
        input[i] = limits.at(i / 3 % limits.size());
        residual[i] = i % 2 == 0 ? 0.0F : -0.0F;
      }
      expect_quantized(input, residual, offset, m);
    });
  }
}

TEST_P(KernelsTest, QuantizeTernaryWithoutResidual) {
  for_lengths([](std::size_t n, std::size_t offset) {
    const auto input = odd_values(n + offset, 7);
    std::vector<float> residual(n + offset, -0.0F);  // adding -0 changes nothing
    const std::size_t words = (n + 63) / 64;
    std::vector<std::uint64_t> sent(words), negative(words), sent_too(words), negative_too(words);
    const bool any = quantize_ternary(input.data() + offset, residual.data() + offset, n, 2.0F,
                                      sent.data(), negative.data());
    EXPECT_EQ(quantize_ternary(input.data() + offset, nullptr, n, 2.0F, sent_too.data(),
                               negative_too.data()),
              any);
    EXPECT_EQ(sent, sent_too);
    EXPECT_EQ(negative, negative_too);
  });
}

bool bit(const std::uint64_t* words, std::size_t i) { return (words[i / 64] >> i % 64 & 1) != 0; }

unsigned digit(bool is_sent, bool is_negative) { return !is_sent ? 1 : is_negative ? 0 : 2; }

TEST_P(KernelsTest, PackNeighboursAndPartitions) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 8; ++round) {
    DigitBits bits;
    PartitionBits stretches;
    const auto fill = [&](auto& words) {
      for (auto& word : words) word = round < 4 ? random() : random() & random() & random();
    };
    fill(bits.sent);
    fill(bits.negative);
    for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
      fill(stretches.sent[k]);
      fill(stretches.negative[k]);
    }
    PackedBlock neighbours;
    PackedBlock partitions;
    pack_neighbours(bits, neighbours);
    pack_partitions(stretches, partitions);
    for (std::size_t g = 0; g < kBlockGroups; ++g) {
      unsigned near = 0;
      unsigned far = 0;
      for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
        const std::size_t i = g * kDigitsPerGroup + k;
        near = near * 3 + digit(bit(bits.sent.data(), i), bit(bits.negative.data(), i));
        far =
            far * 3 + digit(bit(stretches.sent[k].data(), g), bit(stretches.negative[k].data(), g));
      }
      ASSERT_EQ(neighbours.groups[g], near) << g;
      ASSERT_EQ(partitions.groups[g], far) << g;
    }
  }
}

TEST_P(KernelsTest, NotEqualBits) {
  std::mt19937 random(9);
  for (std::size_t words = 0; words < 6; ++words) {
    std::vector<std::uint8_t> bytes(words * 64 + 1);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % 3);
    std::vector<std::uint64_t> expected(words);
    for (std::size_t i = 0; i < words * 64; ++i) set_bit(expected, i, bytes[i + 1] != 1);
    std::vector<std::uint64_t> found(words, 0x5555555555555555);
    not_equal_bits(bytes.data() + 1, words, 1, found.data());
    EXPECT_EQ(found, expected);
  }
}

TEST_P(KernelsTest, CountGroups) {
  for_lengths([](std::size_t n, std::size_t offset) {
    std::mt19937 random(10);
    std::vector<std::uint8_t> bytes(n + offset);
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? random() % 256 : 240 + random() % 16);
      if (i >= offset) expected += bytes[i] < 243 ? 1 : bytes[i] - 241U;
    }
    EXPECT_EQ(count_groups(bytes.data() + offset, n), expected);
  });
}

TEST_P(KernelsTest, AddScaledRoundsTheProductFirst) {
  for_lengths([](std::size_t n, std::size_t offset) {
    auto target = odd_values(n + offset, 11);
    const auto source = odd_values(n + offset, 12);
    auto expected = target;
    for (std::size_t i = offset; i < n + offset; ++i) {
      const volatile float product = 0.1F * source[i];
      expected[i] += product;
    }
    add_scaled(target.data() + offset, source.data() + offset, 0.1F, n);
    EXPECT_EQ(bits_of(target), bits_of(expected));
  });
}

TEST_P(KernelsTest, Add) {
  for_lengths([](std::size_t n, std::size_t offset) {
    auto target = odd_values(n + offset, 13);
    const auto source = odd_values(n + offset, 14);
    auto expected = target;
    for (std::size_t i = offset; i < n + offset; ++i) expected[i] += source[i];
    add(target.data() + offset, source.data() + offset, n);
    EXPECT_EQ(bits_of(target), bits_of(expected));
  });
}

TEST_P(KernelsTest, CopyStreaming) {
  for_lengths([](std::size_t n, std::size_t offset) {
    const auto source = odd_values(n + 2, 15);
    std::vector<float> target(n + offset + 1, 7.0F);
    std::vector<float> expected = target;
    std::copy_n(source.begin() + 1, n, expected.begin() + static_cast<std::ptrdiff_t>(offset));
    copy_streaming(target.data() + offset, source.data() + 1, n);
    EXPECT_EQ(bits_of(target), bits_of(expected));
  });
}

// Zero-run encoding, one group at a time.
std::vector<std::uint8_t> zero_runs(const std::vector<std::uint8_t>& groups) {
  std::vector<std::uint8_t> out;
  std::uint64_t run = 0;
  const auto flush = [&] {
    for (; run >= 14; run -= 14) out.push_back(255);
    if (run > 0) out.push_back(static_cast<std::uint8_t>(run == 1 ? 121 : run + 241));
    run = 0;
  };
  for (const std::uint8_t group : groups) {
    if (group == 121) {
      ++run;
      continue;
    }
    flush();
    out.push_back(group);
  }
  flush();
  return out;
}

// `groups` through a ZeroRunWriter, in blocks of `piece`; also that one byte a group is all that it
// touches.
std::vector<std::uint8_t> written(const std::vector<std::uint8_t>& groups, std::size_t piece) {
  constexpr std::uint8_t kGuard = 0xA5;
  std::vector<std::uint8_t> out(groups.size() + 16, kGuard);
  ZeroRunWriter writer(out.data());
  for (std::size_t done = 0; done < groups.size();) {
    const std::size_t count = std::min(piece, groups.size() - done);
    PackedBlock block;
    block.groups.fill(0);  // what lies behind `count` counts for nothing
    std::copy_n(groups.data() + done, count, block.groups.begin());
    writer.write(block, 0, count);
    done += count;
    EXPECT_LE(writer.end(), out.data() + done);
    EXPECT_TRUE(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(),
                            [](std::uint8_t byte) { return byte == kGuard; }));
  }
  writer.flush_run();
  EXPECT_EQ(writer.open_run(), 0U);
  out.resize(static_cast<std::size_t>(writer.end() - out.data()));
  return out;
}

TEST_P(KernelsTest, ZeroRunsOfEveryLength) {
  for (std::size_t run = 0; run < 3 * kBlockGroups; run += run < 200 ? 1 : 97) {
    SCOPED_TRACE(run);
    std::vector<std::uint8_t> groups(run + 2, kZeroGroup);
    groups.front() = 200;
    groups.back() = 242;
    EXPECT_EQ(written(groups, kBlockGroups), zero_runs(groups));
  }
}

TEST_P(KernelsTest, ZeroRunsOfEveryDensity) {
  std::mt19937 random(16);
  for (const unsigned one_in : {1U, 2U, 3U, 10U, 30U, 100U, 1000U}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, kBlockGroups}) {
      std::vector<std::uint8_t> groups(2999, kZeroGroup);
      for (auto& group : groups) {
        if (random() % one_in == 0) group = static_cast<std::uint8_t>(random() % 243);
      }
      EXPECT_EQ(written(groups, piece), zero_runs(groups));
    }
  }
}

}  // namespace
}  // namespace tersewire::kernels
