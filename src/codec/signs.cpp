#include "signs.h"

#include <memory>

#include "block_sums.h"
#include "errors.h"
#include "residual_encoder.h"
#include "signs_payload.h"

namespace tersewire {
namespace {

// The published forms, 1, diverge at rates that fp32 survives (evidence/blocks).
constexpr float kDefaultLead = 2;

struct SignsCoding {
  CodecId id;
  std::string_view name;
  SignsHead head;
  kernels::BlockSurvey (*survey)(const float* input, const float* residual, std::size_t n);
  // What a tensor's values become, by what the survey found of it.
  kernels::SignValues (*values)(const Survey& found, std::size_t elems);
};

float mean(double sum, std::uint64_t count) {
  return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
}

constexpr SignsCoding kMqe1Bit{CodecId::kMqe1Bit, "mqe1bit", SignsHead::kMeans,
                               kernels::survey_signs, [](const Survey& found, std::size_t elems) {
                                 return kernels::SignValues{
                                     .plus = mean(found.first, elems - found.count),
                                     .minus = mean(found.second, found.count)};
                               }};
constexpr SignsCoding kSignSgd{CodecId::kSignSgd, "signsgd", SignsHead::kMagnitude,
                               kernels::survey_magnitudes,
                               [](const Survey& found, std::size_t elems) {
                                 const float magnitude = mean(found.first, elems);
                                 return kernels::SignValues{.plus = magnitude, .minus = -magnitude};
                               }};

template <const SignsCoding& kCoding>
class SignsEncoder final : public ResidualEncoder {
 public:
  SignsEncoder(std::size_t elems, const EncoderContext& context, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), sums_(elems) {}

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override {
    found_ = sums_.survey(0, elems(), pool, [&](std::size_t begin, std::size_t n) {
      return kCoding.survey(input + begin, residual != nullptr ? residual + begin : nullptr, n);
    });
    return found_.largest_bits;
  }

  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    append_signs(kCoding.head, kCoding.values(found_, call.elems), call, out);
    return kCoding.id;
  }

  BlockSums sums_;
  Survey found_;
};

template <const SignsCoding& kCoding>
class SignsCodec final : public Codec {
 public:
  explicit SignsCodec(SettingText& text)
      : options_(EncoderOptions::take(text, true, kDefaultLead)) {}

  [[nodiscard]] CodecId id() const noexcept override { return kCoding.id; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:{}", kCoding.name, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return signs_max_bytes(kCoding.head, elems);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<SignsEncoder<kCoding>>(elems, context, options_);
  }

 private:
  EncoderOptions options_;
};

template <const SignsCoding& kCoding>
CodecEntry signs_codec(std::string summary, std::vector<CodecParameter> (*parameters)(ByteView)) {
  return {
      .description = {kCoding.id, std::string(kCoding.name), std::move(summary),
                      EncoderOptions::describe({}, true, fmt::format("{}", kDefaultLead))},
      .traits = {.error = CodecTraits::Error::kScaled, .splits = true},
      .make = make_from_text<SignsCodec<kCoding>>,
      .check = [](ByteView payload,
                  std::size_t elems) { check_signs(kCoding.name, kCoding.head, payload, elems); },
      .decode =
          [](ByteView payload, std::span<float> out, ThreadPool* pool) {
            decode_signs(kCoding.name, kCoding.head, payload, out, pool);
          },
      .decode_add =
          [](ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
            decode_add_signs(kCoding.name, kCoding.head, payload, weight, out, pool);
          },
      .parameters = parameters};
}

}  // namespace

const CodecEntry& mqe1bit_codec() {
  static const CodecEntry entry = signs_codec<kMqe1Bit>(
      "one bit per value, which becomes the mean of the values of its sign (1-bit SGD)",
      [](ByteView payload) -> std::vector<CodecParameter> {
        const kernels::SignValues means = read_signs_head(kMqe1Bit.name, kMqe1Bit.head, payload);
        return {{"plus", fmt::format("{}", means.plus), {}, {}},
                {"minus", fmt::format("{}", means.minus), {}, {}}};
      });
  return entry;
}

const CodecEntry& signsgd_codec() {
  static const CodecEntry entry = signs_codec<kSignSgd>(
      "one bit per value, which becomes plus or minus the mean magnitude (EF-signSGD)",
      [](ByteView payload) -> std::vector<CodecParameter> {
        const float magnitude = read_signs_head(kSignSgd.name, kSignSgd.head, payload).plus;
        return {{"magnitude", fmt::format("{}", magnitude), {}, {}}};
      });
  return entry;
}

}  // namespace tersewire
