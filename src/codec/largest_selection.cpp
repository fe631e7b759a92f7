#include "largest_selection.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "float_mode.h"
#include "random_words.h"
#include "selection.h"

namespace tersewire {
namespace {

// Up to so many elements all are the sample.
constexpr std::size_t kWholeSample = 16384;
constexpr std::size_t kSampledPart = 256;
// Draws that are made at once.
constexpr std::size_t kDraws = 1024;
// Words that are worth a thread.
constexpr std::size_t kMinPartWords = 1 << 10;

std::size_t sample_size(std::size_t elems) {
  return elems <= kWholeSample ? elems : std::max(kWholeSample, elems / kSampledPart);
}

// The value of this rank, 1 the largest, by 11 bits at a time of the 31 that magnitudes have: each
// is looked at three times at most, and no branch depends on any. Changes the order of the values.
std::uint32_t largest_of_rank(std::span<std::uint32_t> values, std::size_t rank) {
  constexpr std::uint32_t kBins = 1 << 11;
  for (const unsigned shift : {20U, 9U, 0U}) {
    const auto bin_of = [shift](std::uint32_t value) { return value >> shift & (kBins - 1); };
    std::array<std::uint32_t, kBins> counts{};
    for (const std::uint32_t value : values) ++counts[bin_of(value)];
    std::uint32_t bin = kBins - 1;
    for (; rank > counts[bin]; --bin) rank -= counts[bin];
    std::size_t kept = 0;
    for (const std::uint32_t value : values) {
      values[kept] = value;
      kept += bin_of(value) == bin ? 1 : 0;
    }
    values = values.first(counts[bin]);
  }
  return values.front();
}

}  // namespace

double take_fraction(SettingText& text, double fallback) {
  const std::string word = text.take_word("fraction");
  if (word.empty()) return fallback;
  const auto fraction = parsed_number<double>(word);
  if (!fraction || !(*fraction > 0 && *fraction <= 1)) {
    text.refuse("fraction", "a number above 0, at most 1", word);
  }
  return *fraction;
}

CodecParameter describe_fraction(std::string fallback, std::string published) {
  return {"fraction", std::move(fallback), "(0, 1]", "approximate share of values to send",
          std::move(published)};
}

LargestSelection::LargestSelection(std::size_t elems, const EncoderContext& context,
                                   double fraction, const EncoderOptions& options)
    : ResidualEncoder(elems, context, options),
      sample_(sample_size(elems)),
      sent_(kernels::selection_words(elems)) {
  const DefaultFloatMode mode;
  // Rounds ties to even.
  const double rank = std::nearbyint(fraction * static_cast<double>(sample_.size()));
  rank_ = std::max<std::size_t>(static_cast<std::size_t>(rank), 1);
}

void LargestSelection::take_sample(const float* input, const float* residual) {
  const auto magnitude = [&](std::size_t elem) {
    const float t = residual != nullptr ? input[elem] + residual[elem] : input[elem];
    return std::bit_cast<std::uint32_t>(std::fabs(t));
  };
  if (elems() <= kWholeSample) {
    for (std::size_t i = 0; i < sample_.size(); ++i) sample_[i] = magnitude(i);
    return;
  }
  std::array<std::uint32_t, kDraws> words;
  for (std::size_t i = 0; i < sample_.size(); i += kDraws) {
    const std::size_t n = std::min(kDraws, sample_.size() - i);
    random_words(step(), i, n, words.data());
    for (std::size_t j = 0; j < n; ++j)
      sample_[i + j] = magnitude(kernels::drawn_elem(words[j], elems()));
  }
}

// The smallest magnitude that is sent; never 0, as a 0 is not.
float LargestSelection::threshold(const float* input, const float* residual) {
  if (sample_.empty()) return std::numeric_limits<float>::denorm_min();
  take_sample(input, residual);
  return std::bit_cast<float>(std::max<std::uint32_t>(largest_of_rank(sample_, rank_), 1));
}

std::uint32_t LargestSelection::survey(const float* input, const float* residual,
                                       ThreadPool* pool) {
  const float limit = threshold(input, residual);
  const auto parts = Partition::of(sent_.size(), kMinPartWords, pool);
  std::atomic<std::uint32_t> largest{0};
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i) * kernels::kWordElems;
    const std::size_t end = std::min(parts.end(i) * kernels::kWordElems, elems());
    const std::uint32_t bits =
        kernels::select_above(input + begin, residual != nullptr ? residual + begin : nullptr,
                              end - begin, limit, sent_.data() + parts.begin(i));
    raise_to(largest, bits);
  });
  return largest.load();
}

}  // namespace tersewire
