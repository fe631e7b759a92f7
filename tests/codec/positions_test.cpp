// Positions of sparse payloads: streams worked by hand, a plain search for the best parameter, and
// streams that no reader takes.
#include "../../src/codec/payload/positions.h"

#include <gtest/gtest.h>

#include <optional>

#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

using Elems = std::vector<std::uint64_t>;

struct Mask {
  std::vector<std::uint64_t> words;
  std::vector<std::uint64_t> negative;

  // Every third element named is negative; so is every one that is not named.
  Mask(const Elems& elems, std::size_t n)
      : words(kernels::selection_words(n)), negative(words.size(), ~std::uint64_t{0}) {
    for (std::size_t i = 0; i < elems.size(); ++i) {
      const std::uint64_t bit = std::uint64_t{1} << elems[i] % 64;
      words[elems[i] / 64] |= bit;
      if (i % 3 != 2) negative[elems[i] / 64] &= ~bit;
    }
  }

  [[nodiscard]] NamedElements named(bool signs) const {
    return {words,
            signs ? std::span<const std::uint64_t>(negative) : std::span<const std::uint64_t>()};
  }
};

std::uint64_t stream_bits(const Elems& elems, unsigned k, bool signs) {
  std::uint64_t bits = 0;
  std::uint64_t lowest = 0;
  for (const std::uint64_t elem : elems) {
    bits += ((elem - lowest) >> k) + 1 + k + (signs ? 1 : 0);
    lowest = elem + 1;
  }
  return bits;
}

Bytes stream_of(const Mask& mask, const PositionPlan& plan, bool signs) {
  Bytes stream(plan.stream_bytes() + 1, std::byte{0x5A});
  write_positions(mask.named(signs), plan, reinterpret_cast<std::uint8_t*>(stream.data()));
  EXPECT_EQ(stream.back(), std::byte{0x5A});
  stream.pop_back();
  return stream;
}

template <typename Reader>
std::pair<Elems, std::vector<bool>> read_all(Reader reader) {
  std::pair<Elems, std::vector<bool>> found;
  for (auto batch = reader.next(); !batch.empty(); batch = reader.next()) {
    for (const FoundElement& element : batch) {
      found.first.push_back(element.elem());
      found.second.push_back(element.negative());
    }
  }
  return found;
}

// The plan is the best there is, its stream has the length that it says, and reads back.
void expect_round_trip(const Elems& elems, std::size_t n, std::optional<unsigned> forced_k = {}) {
  const Mask mask(elems, n);
  for (const bool signs : {false, true}) {
    PositionPlan plan = PositionPlan::of(mask.named(signs));
    unsigned best = 0;
    for (unsigned k = 1; k <= kMaxRiceParameter; ++k) {
      if (stream_bits(elems, k, signs) < stream_bits(elems, best, signs)) best = k;
    }
    ASSERT_EQ(plan.k, best) << elems.size() << " of " << n;
    ASSERT_EQ(plan.count, elems.size());
    ASSERT_LE(plan.stream_bits, 2 * n);
    if (forced_k) {
      plan.k = static_cast<std::uint8_t>(*forced_k);
      plan.stream_bits = stream_bits(elems, plan.k, signs);
    }
    ASSERT_EQ(plan.stream_bits, stream_bits(elems, plan.k, signs));
    const Bytes stream = stream_of(mask, plan, signs);
    const auto found = read_all(GapReader(stream, plan.k, signs, elems.size(), n, "test"));
    ASSERT_EQ(found.first, elems);
    for (std::size_t i = 0; i < elems.size(); ++i) {
      ASSERT_EQ(found.second[i], signs && i % 3 == 2);
    }
  }
}

Elems random_elems(std::size_t n, double density, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution named(density);
  Elems elems;
  for (std::size_t e = 0; e < n; ++e) {
    if (named(random)) elems.push_back(e);
  }
  return elems;
}

TEST(Positions, KnownStreams) {
  // Gaps 0, 2 and 0: one bit, three and one. Bits in order: 1 001 1.
  const Mask few({0, 3, 4}, 10);
  PositionPlan plan = PositionPlan::of(few.named(false));
  EXPECT_EQ(plan.k, 0);
  EXPECT_EQ(plan.stream_bits, 5U);
  EXPECT_EQ(stream_of(few, plan, false), bytes_of({0b11001}));
  // With signs, the third of them negative: 10 0010 11.
  plan = PositionPlan::of(few.named(true));
  EXPECT_EQ(plan.stream_bits, 8U);
  EXPECT_EQ(stream_of(few, plan, true), bytes_of({0b11010001}));
  // Gaps 9 and 15 take 26, 15, 11, 10 and 10 bits with k from 0 to 4. With k = 3 they are 1 and 1,
  // 1 and 7: 01 100 01 111.
  const Mask two({9, 25}, 26);
  plan = PositionPlan::of(two.named(false));
  EXPECT_EQ(plan.k, 3);
  EXPECT_EQ(plan.stream_bits, 10U);
  EXPECT_EQ(stream_of(two, plan, false), bytes_of({0b11000110, 0b11}));
}

TEST(Positions, OfNothingAreNothing) {
  for (const std::size_t n : {0U, 1U, 64U, 65U, 1000U}) {
    const PositionPlan plan = PositionPlan::of(Mask({}, n).named(true));
    EXPECT_EQ(plan.count, 0U);
    EXPECT_EQ(plan.k, 0);
    EXPECT_EQ(plan.stream_bytes(), 0U);
    expect_round_trip({}, n);
  }
}

TEST(Positions, EveryShortLength) {
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    for (std::size_t n = 1; n < 140; ++n) {
      for (const double density : {0.02, 0.3, 0.9, 1.0}) {
        expect_round_trip(random_elems(n, density, static_cast<unsigned>(n)), n);
      }
      expect_round_trip({n - 1}, n);
    }
  }
}

TEST(Positions, EveryDensity) {
  for (const double density : {1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99}) {
    expect_round_trip(random_elems(300'000, density, 7), 300'000);
  }
}

// Far from what one parameter is made for: stretches with every element and wide empty ones.
TEST(Positions, Clusters) {
  for (const std::size_t length : {3U, 64U, 1000U}) {
    Elems elems;
    for (std::size_t start = 0; start < 2'000'000; start += 400'000) {
      for (std::size_t i = 0; i < length; ++i) elems.push_back(start + i);
    }
    expect_round_trip(elems, 2'000'000);
  }
}

// Codes longer than the 64 bits that are read at once, and fields of every width.
TEST(Positions, LongCodes) {
  const Elems elems{0, 1, 57, 58, 200, 263, 5000, 5001, 9999};
  for (unsigned k = 0; k <= kMaxRiceParameter; ++k) expect_round_trip(elems, 10'000, k);
}

bool reads(ByteView stream, unsigned k, bool signs, std::uint64_t count, std::size_t n) {
  return !fails_with(ErrorCode::kDataLoss,
                     [&] { check_elements(GapReader(stream, k, signs, count, n, "test")); });
}

TEST(Positions, StreamsThatAreNotTaken) {
  const Elems elems = random_elems(3000, 0.05, 5);
  const Mask mask(elems, 3000);
  for (const bool signs : {false, true}) {
    const PositionPlan plan = PositionPlan::of(mask.named(signs));
    const Bytes stream = stream_of(mask, plan, signs);
    ASSERT_TRUE(reads(stream, plan.k, signs, plan.count, 3000));
    EXPECT_TRUE(reads(stream, plan.k, signs, plan.count, elems.back() + 1));
    EXPECT_FALSE(reads(stream, plan.k, signs, plan.count, elems.back()));
    EXPECT_FALSE(reads(stream, plan.k, signs, plan.count + 1, 3000));
    for (std::uint64_t less = 1; less < 9; ++less) {
      EXPECT_FALSE(reads(stream, plan.k, signs, plan.count - less, 3000));
    }
    for (std::size_t bytes = 0; bytes < stream.size(); ++bytes) {
      EXPECT_FALSE(reads(ByteView(stream).first(bytes), plan.k, signs, plan.count, 3000));
    }
    for (const int more : {0, 1}) {
      Bytes longer = stream;
      longer.push_back(static_cast<std::byte>(more));
      EXPECT_FALSE(reads(longer, plan.k, signs, plan.count, 3000));
    }
    for (std::uint64_t bit = plan.stream_bits; bit < 8 * stream.size(); ++bit) {
      Bytes padded = stream;
      padded[bit / 8] |= static_cast<std::byte>(1U << bit % 8);
      EXPECT_FALSE(reads(padded, plan.k, signs, plan.count, 3000));
    }
  }
}

TEST(Positions, GapsBeyondAllElementsAreNotTaken) {
  constexpr std::size_t kMostElems = std::size_t{1} << 40;
  // 2^39 - 1, the highest field, is an element of the largest tensor; one zero more is not past it.
  const Bytes field = bytes_of({255, 255, 255, 255, 255});
  EXPECT_TRUE(reads(field, 39, false, 1, kMostElems));
  EXPECT_FALSE(reads(field, 39, false, 1, kMostElems / 2 - 1));
  // Zeros that shifted by 39 would be more than 64 bits hold.
  Bytes zeros(1 << 22, std::byte{0});
  EXPECT_FALSE(reads(zeros, 39, false, 1, kMostElems));
  zeros.insert(zeros.end(), field.begin(), field.end());
  EXPECT_FALSE(reads(zeros, 39, false, 1, kMostElems));
  EXPECT_FALSE(reads(zeros, 0, false, 1, 1 << 22));
}

TEST(Positions, Bitmaps) {
  const Elems elems = random_elems(1003, 0.4, 9);
  const Mask mask(elems, 1003);
  const auto* begin = reinterpret_cast<const std::byte*>(mask.words.data());
  const Bytes bitmap(begin, begin + 126);
  EXPECT_EQ(read_all(BitmapReader(bitmap, elems.size(), 1003, "test")).first, elems);
  EXPECT_TRUE(read_all(BitmapReader({}, 0, 0, "test")).first.empty());
  const auto takes = [](ByteView bytes, std::uint64_t count, std::size_t n) {
    return !fails_with(ErrorCode::kDataLoss,
                       [&] { check_elements(BitmapReader(bytes, count, n, "test")); });
  };
  EXPECT_FALSE(takes(bitmap, elems.size() + 1, 1003));
  EXPECT_FALSE(takes(bitmap, elems.size() - 1, 1003));
  EXPECT_FALSE(takes(bitmap, elems.size(), 1009));
  EXPECT_FALSE(takes(bitmap, elems.size(), 1000));
  for (unsigned bit = 3; bit < 8; ++bit) {
    Bytes padded = bitmap;
    padded.back() |= static_cast<std::byte>(1U << bit);
    EXPECT_FALSE(takes(padded, elems.size() + 1, 1003));
  }
}

TEST(Positions, VarintBytes) {
  EXPECT_EQ(varint_bytes(0), 1U);
  EXPECT_EQ(varint_bytes(127), 1U);
  EXPECT_EQ(varint_bytes(128), 2U);
  EXPECT_EQ(varint_bytes(std::uint64_t{1} << 40), 6U);
}

}  // namespace
}  // namespace tersewire
