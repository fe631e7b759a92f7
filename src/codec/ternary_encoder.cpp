// What codecs terngrad and stoch3 share in encoding.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "block_sums.h"
#include "byte_io.h"
#include "errors.h"
#include "float_mode.h"
#include "kernels.h"
#include "residual_encoder.h"
#include "stochastic_ternary.h"
#include "ternary_groups.h"
#include "ternary_payload.h"
#include "ternary_unpack.h"

namespace tersewire {
namespace {

using kernels::kBlockElems;
using kernels::kDigitsPerGroup;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kDefaultClip = 2.5;
constexpr double kMaxClip = 1e6;
constexpr double kMostRateGain = 2;

class TernaryEncoder final : public ResidualEncoder {
 public:
  TernaryEncoder(std::size_t elems, const EncoderContext& context, const TernaryCodec& codec)
      : ResidualEncoder(elems, context, codec.options),
        codec_(codec),
        bucket_elems_(codec.format.bucket_elems != 0 ? codec.format.bucket_elems
                                                     : std::max<std::size_t>(elems, 1)),
        sums_(elems),
        scales_(codec.format.scalers(elems)) {}

  std::vector<float> local_scalers(std::span<const float> input, ThreadPool* pool) override;
  Encoded encode_under(std::span<const float> agreed, std::span<const float> input,
                       std::uint64_t step, Bytes& out, ThreadPool* pool) override;

 private:
  // Finds the scales of all buckets.
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override;
  [[nodiscard]] kernels::StochasticScale scale_of(const Survey& survey, std::size_t n) const;
  // Takes the agreed scalers over; throws where one is below this tensor's own.
  void raise_scalers(std::span<const float> agreed);

  // Encodes under the scales.
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;
  void write_pairs(const EncodeCall& call, std::uint8_t* body) const;
  // Draws the digits of elements [first, first + n), a block or less. Returns whether any is not 0.
  bool quantize(const EncodeCall& call, std::size_t first, std::size_t n,
                kernels::DigitBits& bits) const;

  TernaryCodec codec_;
  std::size_t bucket_elems_;
  BlockSums sums_;
  std::vector<kernels::StochasticScale> scales_;  // of the buckets; a scaler may be 0 here
  GroupWriter writer_;
};

// The scale of a bucket of n values (TernGrad, section 3.3).
kernels::StochasticScale TernaryEncoder::scale_of(const Survey& survey, std::size_t n) const {
  const auto largest = std::bit_cast<float>(survey.largest_bits);
  if (!codec_.clip) return {.scaler = largest, .limit = kInfinity};
  const auto count = static_cast<double>(n);
  const double mean = survey.first / count;
  const double variance = survey.second / count - mean * mean;
  const auto limit = static_cast<float>(*codec_.clip * std::sqrt(std::max(variance, 0.0)));
  // An infinite limit is none, and so is 0: its variance says nothing of the values.
  if (limit == 0) return {.scaler = largest, .limit = kInfinity};
  return {.scaler = std::min(largest, limit), .limit = limit};
}

std::uint32_t TernaryEncoder::survey(const float* input, const float* residual, ThreadPool* pool) {
  if (elems() == 0) {
    std::ranges::fill(scales_, kernels::StochasticScale{.scaler = 0, .limit = kInfinity});
    return 0;
  }
  const auto survey_block = [&](std::size_t begin, std::size_t n) {
    const float* rest = residual != nullptr ? residual + begin : nullptr;
    if (!codec_.clip) {
      return kernels::BlockSurvey{.largest_bits =
                                      kernels::max_abs_sum_bits(input + begin, rest, n)};
    }
    const std::size_t first = begin / bucket_elems_ * bucket_elems_;
    const float shift = residual != nullptr ? input[first] + residual[first] : input[first];
    return kernels::survey_moments(input + begin, rest, n, shift);
  };
  return sums_.survey_buckets(
      elems(), bucket_elems_, pool, survey_block, [&](std::size_t i, const Survey& found) {
        scales_[i] = scale_of(found, std::min(bucket_elems_, elems() - i * bucket_elems_));
      });
}

std::vector<float> TernaryEncoder::local_scalers(std::span<const float> input, ThreadPool* pool) {
  const DefaultFloatMode mode;
  check_length(input.size());
  const bool finite = survey(input.data(), residual_data(), pool) < kernels::kNotFinite;
  std::vector<float> scalers(scales_.size(), kInfinity);
  if (finite) {
    std::ranges::transform(scales_, scalers.begin(), &kernels::StochasticScale::scaler);
  }
  return scalers;
}

void TernaryEncoder::raise_scalers(std::span<const float> agreed) {
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    if (std::signbit(agreed[i]) || !(agreed[i] >= scales_[i].scaler)) {
      fail(ErrorCode::kInvalidArgument,
           "scaler {} is {}, below the tensor's own of {}; agree on the largest one of all senders",
           i, agreed[i], scales_[i].scaler);
    }
  }
  for (std::size_t i = 0; i < scales_.size(); ++i) scales_[i].scaler = agreed[i];
}

Encoded TernaryEncoder::encode_under(std::span<const float> agreed, std::span<const float> input,
                                     std::uint64_t step, Bytes& out, ThreadPool* pool) {
  const DefaultFloatMode mode;
  check_length(input.size());
  if (agreed.size() != scales_.size()) {
    fail(ErrorCode::kInvalidArgument, "{} scalers were agreed on, but the tensor has {}",
         agreed.size(), scales_.size());
  }
  const std::uint32_t largest = survey(input.data(), residual_data(), pool);
  const bool finite = largest < kernels::kNotFinite;
  if (!finite) std::ranges::fill(scales_, kernels::StochasticScale{kInfinity, kInfinity});
  raise_scalers(agreed);
  if (!finite || std::ranges::find(agreed, kInfinity) != agreed.end()) {
    return append_raw(input, !finite, out);
  }
  return {encode_finite({.input = input.data(),
                         .residual = residual_data(),
                         .elems = elems(),
                         .largest = std::bit_cast<float>(largest),
                         .step = step,
                         .pool = pool},
                        out),
          false};
}

// Puts the lowest n bits of `from` into words that are 0 from bit `at` on.
void put_bits(const std::uint64_t* from, std::size_t n, std::uint64_t* words, std::size_t at) {
  for (std::size_t i = 0; i < n; i += 64, at += 64) {
    words[at / 64] |= from[i / 64] << at % 64;
    if (at % 64 != 0) words[at / 64 + 1] |= from[i / 64] >> (64 - at % 64);
  }
}

bool TernaryEncoder::quantize(const EncodeCall& call, std::size_t first, std::size_t n,
                              kernels::DigitBits& bits) const {
  std::array<std::uint32_t, kBlockElems> words;
  random_words(call.step, first, n, words.data());
  const auto draw = [&](std::size_t at, std::size_t count, std::uint64_t* sent,
                        std::uint64_t* negative) {
    kernels::StochasticScale scale = scales_[at / bucket_elems_];
    // All values are zeros then, which no scaler makes anything of.
    if (scale.scaler == 0) scale.scaler = 1;
    return kernels::quantize_stochastic(call.input + at,
                                        call.residual != nullptr ? call.residual + at : nullptr,
                                        count, scale, &words[at - first], sent, negative);
  };
  if (n <= bucket_elems_ - first % bucket_elems_) {
    return draw(first, n, bits.sent.data(), bits.negative.data());
  }
  bool any = false;
  for (std::size_t at = first; at < first + n;) {
    const std::size_t count = std::min(first + n - at, bucket_elems_ - at % bucket_elems_);
    kernels::DigitBits piece;
    any |= draw(at, count, piece.sent.data(), piece.negative.data());
    put_bits(piece.sent.data(), count, bits.sent.data(), at - first);
    put_bits(piece.negative.data(), count, bits.negative.data(), at - first);
    at += count;
  }
  return any;
}

void TernaryEncoder::write_pairs(const EncodeCall& call, std::uint8_t* body) const {
  const auto cut = Partition::of(call.elems, kMinPartGroups * kDigitsPerGroup, call.pool);
  run_parts(call.pool, cut.count(), [&](std::size_t part) {
    for (std::size_t i = cut.begin(part); i < cut.end(part); i += kBlockElems) {
      const std::size_t n = std::min(kBlockElems, cut.end(part) - i);
      kernels::DigitBits bits;
      std::array<std::uint8_t, kBlockElems / 4> pairs{};
      if (quantize(call, i, n, bits)) {
        kernels::pack_pairs(bits.sent.data(), bits.negative.data(), kBlockElems / 32, pairs.data());
      }
      std::memcpy(body + i / 4, pairs.data(), (n + 3) / 4);
    }
  });
}

CodecId TernaryEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const TernaryFormat& format = codec_.format;
  const std::size_t start = out.size();
  // All that may throw: what follows fits.
  out.resize(start + format.max_bytes(call.elems));
  out.resize(start);
  format.append_head(out);
  for (const kernels::StochasticScale& scale : scales_) append_value(out, scale.scaler);
  const std::size_t head = out.size();
  out.resize(head + format.max_body_bytes(call.elems));
  auto* body = reinterpret_cast<std::uint8_t*>(out.data() + head);
  if (format.packing == TernaryPacking::kTwoBits) {
    write_pairs(call, body);
    return codec_.id;
  }
  const GroupLayout layout{.partitions = false,
                           .zero_runs = format.packing == TernaryPacking::kZeroRuns};
  const std::uint8_t* end =
      writer_.write(group_count(call.elems), layout, body, call.pool,
                    [&](std::size_t begin, std::size_t count, kernels::PackedBlock& packed) {
                      const std::size_t first = begin * kDigitsPerGroup;
                      const std::size_t n = std::min(count * kDigitsPerGroup, call.elems - first);
                      kernels::DigitBits bits;
                      if (!quantize(call, first, n, bits)) return false;
                      kernels::pack_neighbours(bits, packed);
                      return true;
                    });
  out.resize(head + static_cast<std::size_t>(end - body));
  return codec_.id;
}

}  // namespace

std::optional<double> take_ternary_clip(SettingText& text) {
  const std::string word = text.take_word("clip");
  if (word.empty()) return kDefaultClip;
  if (word == "off") return std::nullopt;
  const auto clip = parsed_number<double>(word);
  if (!clip || !(*clip > 0 && *clip <= kMaxClip)) {
    text.refuse("clip", "off or a number above 0, at most 1e6", word);
  }
  return clip;
}

std::string ternary_clip_text(std::optional<double> clip) {
  return clip ? fmt::format("{}", *clip) : "off";
}

CodecParameter ternary_clip_parameter(std::string published) {
  return {"clip", fmt::format("{}", kDefaultClip), "off, (0, 1e6]",
          "clip at this many standard deviations", std::move(published)};
}

double ternary_rate_gain(const TernaryCodec& codec) {
  if (codec.options.error_feedback) return 1;
  if (!codec.clip) return kMostRateGain;
  const double mean_magnitude = std::sqrt(2 / std::numbers::pi);
  return std::clamp(std::sqrt(*codec.clip * mean_magnitude), 1.0, kMostRateGain);
}

std::unique_ptr<Encoder> make_ternary_encoder(std::size_t elems, const EncoderContext& context,
                                              const TernaryCodec& codec) {
  return std::make_unique<TernaryEncoder>(elems, context, codec);
}

}  // namespace tersewire
