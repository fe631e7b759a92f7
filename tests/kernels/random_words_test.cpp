// The random numbers against Random123, their authors' own implementation, on every SIMD target.
#include "../../src/kernels/random_words.h"

#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tersewire/simd.h"

namespace tersewire::kernels {
namespace {

using Words = std::vector<std::uint32_t>;

Words words_of(const RandomStream& stream, std::uint64_t first, std::size_t n) {
  Words words(n + 1, 42);
  random_words(stream, first, n, words.data());
  EXPECT_EQ(words.back(), 42U) << "written past the end";
  words.pop_back();
  return words;
}

// As spec/wire-format.md lays counter and key out.
Words oracle(const RandomStream& stream, std::uint64_t first, std::size_t n) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const r123::Philox4x32::key_type key{{low(stream.seed), low(stream.seed >> 32)}};
  Words words;
  for (std::uint64_t j = first / 4; words.size() < n; ++j) {
    const r123::Philox4x32::ctr_type counter{{low(j),
                                              low((j >> 32) + 256 * std::uint64_t{stream.sender}),
                                              stream.tensor, low(stream.step)}};
    const auto block = r123::Philox4x32_R<10>()(counter, key);
    for (std::size_t i = 0; i < 4 && words.size() < n; ++i) words.push_back(block[i]);
  }
  return words;
}

class RandomWordsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override {
    EXPECT_EQ(simd_target(), GetParam());
    force_simd_target("best");
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, RandomWordsTest, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

// The three that Random123 publishes in its kat_vectors for philox4x32 with ten rounds. Their
// counters' words are block, sender (upper 24 bits; the lowest 8 belong to the block), tensor,
// step.
TEST_P(RandomWordsTest, PublishedAnswers) {
  EXPECT_EQ(words_of({}, 0, 4), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const RandomStream ones{
      .seed = ~std::uint64_t{0}, .sender = 0xffffff, .tensor = 0xffffffff, .step = 0xffffffff};
  EXPECT_EQ(words_of(ones, 4 * 0xffffffffff, 4),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  const RandomStream pi{
      .seed = 0x299f31d0a4093822, .sender = 0x85a308, .tensor = 0x13198a2e, .step = 0x03707344};
  EXPECT_EQ(words_of(pi, 4 * 0xd3243f6a88, 4),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_P(RandomWordsTest, EveryLength) {
  const RandomStream stream{.seed = 0x123456789abcdef0, .sender = 7, .tensor = 3, .step = 99};
  const Words expected = oracle(stream, 400, 200);
  for (std::size_t n = 0; n <= expected.size(); ++n) {
    const Words first_n(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(words_of(stream, 400, n), first_n) << n;
  }
}

TEST_P(RandomWordsTest, EveryPlace) {
  const std::uint64_t seed = 2017;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const std::uint64_t first :
       {std::uint64_t{0}, (std::uint64_t{1} << 34) - 40, (std::uint64_t{1} << 42) - 200}) {
    for (int i = 0; i < 10; ++i) {
      const RandomStream stream{.seed = random(),
                                .sender = static_cast<std::uint32_t>(random() >> 40),
                                .tensor = static_cast<std::uint32_t>(random()),
                                .step = random()};
      EXPECT_EQ(words_of(stream, first, 200), oracle(stream, first, 200)) << first;
    }
  }
}

}  // namespace
}  // namespace tersewire::kernels
