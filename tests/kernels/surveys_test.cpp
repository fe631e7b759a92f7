// First passes: every SIMD target gives the bits that a plain loop gives.
#include "../../src/kernels/surveys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "../../src/codec/payload/block_sums.h"
#include "tersewire/simd.h"

namespace tersewire {
namespace {

using Floats = std::vector<float>;
using kernels::BlockSurvey;
using kernels::kSumBlockElems;

// The specification's S of one block, one value at a time.
double plain_sum(const std::vector<double>& values) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) lanes[i % 16] += values[i];
  for (std::size_t h = 8; h > 0; h /= 2) {
    for (std::size_t j = 0; j < h; ++j) lanes[j] += lanes[j + h];
  }
  return lanes[0];
}

Floats sums_of(const Floats& input, const Floats& residual) {
  Floats t = input;
  for (std::size_t i = 0; i < residual.size(); ++i) t[i] += residual[i];
  return t;
}

template <typename Term>
double plain_sum_of(const Floats& t, const Term& term) {
  std::vector<double> terms;
  for (const float value : t) terms.push_back(term(double{value}));
  return plain_sum(terms);
}

std::uint32_t plain_largest(const Floats& t) {
  float largest = 0;
  for (const float value : t) largest = std::max(largest, std::fabs(value));
  return std::bit_cast<std::uint32_t>(largest);
}

constexpr float kShift = 0.375F;

// One kind of survey, done both ways.
struct Kind {
  const char* name;
  std::function<BlockSurvey(const float*, const float*, std::size_t)> survey;
  std::function<double(double)> first;
  std::function<double(double)> second;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kinds{
      {"moments",
       [](const float* a, const float* b, std::size_t n) {
         return kernels::survey_moments(a, b, n, kShift);
       },
       [](double t) { return t - double{kShift}; },
       [](double t) { return (t - double{kShift}) * (t - double{kShift}); }},
      {"squares", kernels::survey_squares, [](double t) { return t * t; },
       [](double) { return 0.0; }},
      {"magnitudes", kernels::survey_magnitudes, [](double t) { return std::fabs(t); },
       [](double) { return 0.0; }},
      {"signs", kernels::survey_signs, [](double t) { return t >= 0 ? t : 0.0; },
       [](double t) { return t < 0 ? t : 0.0; }}};
  return kinds;
}

Floats random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-140, 120);
  Floats values(n);
  for (float& value : values) value = std::ldexp(normal(random), exponent(random));
  return values;
}

// The bits of a sum: -0 is not 0.
std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

void expect_as_plain(const Kind& kind, const Floats& input, const Floats& residual) {
  const Floats t = sums_of(input, residual);
  const BlockSurvey survey =
      kind.survey(input.data(), residual.empty() ? nullptr : residual.data(), input.size());
  EXPECT_EQ(survey.largest_bits, plain_largest(t));
  EXPECT_EQ(bits_of(survey.first), bits_of(plain_sum_of(t, kind.first)));
  EXPECT_EQ(bits_of(survey.second), bits_of(plain_sum_of(t, kind.second)));
  if (std::string(kind.name) != "signs") return;
  EXPECT_EQ(survey.count, std::ranges::count_if(t, [](float value) { return value < 0; }));
}

class Surveys : public testing::Test {
 protected:
  void TearDown() override { force_simd_target("best"); }
};

TEST_F(Surveys, AddTwoLinesInSixteenLanes) {
  Floats values(17, 0.0F);
  values[0] = 1;
  values[1] = -0x1p60F;
  values[9] = 0x1p60F;  // meets value 1 before the small ones come
  values[16] = 2;
  EXPECT_EQ(kernels::sum_block(values.data(), values.size()), 3);
  const BlockSurvey signs = kernels::survey_signs(values.data(), nullptr, values.size());
  EXPECT_EQ(signs.first, 0x1p60);
  EXPECT_EQ(signs.second, -0x1p60);
  EXPECT_EQ(signs.count, 1U);
}

TEST_F(Surveys, GiveThePlainLoopsBitsOnEveryTarget) {
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    for (const Kind& kind : kinds()) {
      for (const std::size_t n :
           {0U, 1U, 2U, 7U, 8U, 9U, 15U, 16U, 17U, 31U, 33U, 255U, 4095U, 4096U}) {
        SCOPED_TRACE(target + " " + kind.name + ", n = " + std::to_string(n));
        const auto seed = static_cast<unsigned>(n);
        expect_as_plain(kind, random_values(n, seed), {});
        expect_as_plain(kind, random_values(n, seed), random_values(n, seed + 1));
        expect_as_plain(kind, Floats(n, -0.0F), {});
        expect_as_plain(kind, Floats(n, std::numeric_limits<float>::max()), {});
        expect_as_plain(kind, Floats(n, -std::numeric_limits<float>::denorm_min()), {});
      }
    }
    const Floats values = random_values(4093, 5);
    EXPECT_EQ(kernels::sum_block(values.data() + 1, 4092),
              plain_sum(std::vector<double>(values.begin() + 1, values.end())));
  }
}

TEST_F(Surveys, SeeWhatIsNotFinite) {
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    for (const Kind& kind : kinds()) {
      for (const std::size_t at : {0U, 5U, 40U}) {
        Floats values(41, 1.0F);
        values[at] = -std::numeric_limits<float>::infinity();
        EXPECT_EQ(kind.survey(values.data(), nullptr, 41).largest_bits, 0x7F800000U);
        values[at] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_GT(kind.survey(values.data(), nullptr, 41).largest_bits, 0x7F800000U);
        values[at] = std::numeric_limits<float>::max();
        EXPECT_EQ(kind.survey(values.data(), values.data(), 41).largest_bits, 0x7F800000U);
      }
    }
  }
}

// Blocks of a range, added in order, by any number of threads.
TEST_F(Surveys, OfTensorsAndBucketsDoNotDependOnThreads) {
  constexpr std::size_t n = 200001;
  const Floats values = random_values(n, 7);
  const auto block = [&](std::size_t begin, std::size_t count) {
    return kernels::survey_squares(values.data() + begin, nullptr, count);
  };
  BlockSums sums(n);
  for (const std::size_t bucket :
       {std::size_t{999}, std::size_t{4097}, std::size_t{70000}, n, 2 * n}) {
    for (const std::size_t threads : {1U, 2U, 3U}) {
      SCOPED_TRACE("bucket " + std::to_string(bucket) + ", threads " + std::to_string(threads));
      ThreadPool pool(threads);
      std::vector<Survey> found((n + bucket - 1) / bucket);
      const std::uint32_t largest =
          sums.survey_buckets(n, bucket, threads == 1 ? nullptr : &pool, block,
                              [&](std::size_t i, const Survey& survey) { found[i] = survey; });
      EXPECT_EQ(largest, plain_largest(values));
      for (std::size_t i = 0; i < found.size(); ++i) {
        double expected = 0;
        const std::size_t end = std::min(n, (i + 1) * bucket);
        for (std::size_t at = i * bucket; at < end; at += kSumBlockElems) {
          const auto from = values.begin() + static_cast<std::ptrdiff_t>(at);
          const auto count = static_cast<std::ptrdiff_t>(std::min(kSumBlockElems, end - at));
          expected += plain_sum_of(Floats(from, from + count), [](double t) { return t * t; });
        }
        ASSERT_EQ(bits_of(found[i].first), bits_of(expected));
      }
    }
  }
  EXPECT_EQ(sums.survey(0, 0, nullptr, block).largest_bits, 0U);
}

}  // namespace
}  // namespace tersewire
