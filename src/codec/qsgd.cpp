#include "qsgd.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "block_sums.h"
#include "byte_io.h"
#include "errors.h"
#include "level_codes.h"
#include "levels_payload.h"
#include "residual_encoder.h"
#include "scaling.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::string_view kName = "qsgd";
constexpr std::uint32_t kDefaultLevels = 7;
constexpr std::uint64_t kDefaultBucketElems = 512;

// A bucket's scaler: the norm of its values, whose squares' sum `found` holds.
float norm_of(const Survey& found) {
  const double norm = std::sqrt(found.first);
  if (!(norm < double{kernels::kLargestDividedScale})) return kernels::kLargestDividedScale;
  return std::max(static_cast<float>(norm), std::bit_cast<float>(found.largest_bits));
}

kernels::LevelScale scale_of(std::uint32_t levels, float norm) {
  const auto most = static_cast<std::int32_t>(levels);
  if (norm == 0) return {.most = most};
  const auto parts = static_cast<float>(levels);
  const float factor = kernels::scaling_factor(norm);
  return {
      .most = most, .factor = factor, .quotient = parts / (norm * factor), .step = norm / parts};
}

class QsgdEncoder final : public ResidualEncoder {
 public:
  QsgdEncoder(std::size_t elems, const EncoderContext& context, const LevelsFormat& format,
              const EncoderOptions& options)
      : ResidualEncoder(elems, context, options),
        format_(format),
        sums_(elems),
        norms_(format.scalers(elems)) {}

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override;
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;

  // Quantizes a block of a call's elements.
  void make_codes(const EncodeCall& call, std::size_t begin, std::size_t n,
                  std::uint32_t* codes) const;

  LevelsFormat format_;
  BlockSums sums_;
  std::vector<float> norms_;  // of the buckets
};

std::uint32_t QsgdEncoder::survey(const float* input, const float* residual, ThreadPool* pool) {
  const auto block = [&](std::size_t begin, std::size_t n) {
    return kernels::survey_squares(input + begin, residual != nullptr ? residual + begin : nullptr,
                                   n);
  };
  if (format_.bucket_elems() == 0) {
    const Survey found = sums_.survey(0, elems(), pool, block);
    norms_[0] = norm_of(found);
    return found.largest_bits;
  }
  return sums_.survey_buckets(
      elems(), format_.bucket_elems(), pool, block,
      [&](std::size_t bucket, const Survey& found) { norms_[bucket] = norm_of(found); });
}

void QsgdEncoder::make_codes(const EncodeCall& call, std::size_t begin, std::size_t n,
                             std::uint32_t* codes) const {
  LevelCodes words;
  random_words(call.step, begin, n, words.data());
  format_.visit_buckets(begin, n, [&](std::size_t bucket, std::size_t first, std::size_t count) {
    const std::size_t at = first - begin;
    kernels::quantize_levels(
        call.input + first, call.residual != nullptr ? call.residual + first : nullptr, count,
        scale_of(format_.levels(), norms_[bucket]), words.data() + at, codes + at);
  });
}

CodecId QsgdEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  format_.append_head(out);
  append(out, norms_.data(), norms_.size() * sizeof(float));
  const auto make = [&](std::size_t begin, std::size_t n, std::uint32_t* codes) {
    make_codes(call, begin, n, codes);
  };
  append_levels_body(format_, call.elems, call.pool, make, out);
  return CodecId::kQsgd;
}

class QsgdCodec final : public Codec {
 public:
  explicit QsgdCodec(SettingText& text)
      : levels_(
            static_cast<std::uint32_t>(text.take_integer("levels", kDefaultLevels, 1, kMaxLevels))),
        bucket_elems_(text.take_integer("bucket", kDefaultBucketElems, 0, kMaxElems)),
        options_(EncoderOptions::take(text, false)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kQsgd; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:levels={},bucket={},{}", kName, levels_, bucket_elems_, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(format_for(elems).bytes(elems), elems * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<QsgdEncoder>(elems, context, format_for(elems), options_);
  }

 private:
  [[nodiscard]] LevelsFormat format_for(std::size_t elems) const {
    return shorter_format(levels_, bucket_elems_, elems);
  }

  std::uint32_t levels_;
  std::uint64_t bucket_elems_;
  EncoderOptions options_;
};

void check(ByteView payload, std::size_t elems) { check_levels(kName, payload, elems); }

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  decode_levels(kName, payload, out, pool);
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  decode_add_levels(kName, payload, weight, out, pool);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  return levels_parameters(kName, payload);
}

CodecDescription description() {
  return {CodecId::kQsgd, std::string(kName),
          "a few levels of the bucket's norm, rounded up or down at random without bias (QSGD)",
          EncoderOptions::describe(
              {{"levels", fmt::format("{}", kDefaultLevels), "1 to 65535",
                "levels on either side of 0: more are more exact and take more bits"},
               {"bucket", fmt::format("{}", kDefaultBucketElems), "0 to 2^40",
                "values that share a scale; 0: all of them"}},
              false)};
}

}  // namespace

const CodecEntry& qsgd_codec() {
  static const CodecEntry entry{
      .description = description(),
      .traits = {.error = CodecTraits::Error::kUnbiased, .fits_sums = true, .splits = true},
      .make = make_from_text<QsgdCodec>,
      .check = check,
      .decode = decode,
      .decode_add = decode_add,
      .parameters = parameters};
  return entry;
}

}  // namespace tersewire
