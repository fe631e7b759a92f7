#include "signsgd.h"

#include "block_sums.h"
#include "errors.h"
#include "signs_payload.h"

namespace tersewire {
namespace {

constexpr std::string_view kName = "signsgd";
constexpr auto kHead = SignsHead::kMagnitude;
// The published form, 1, diverges at rates that fp32 survives (docs/record.md).
constexpr float kDefaultLead = 2;

class SignSgdEncoder final : public ResidualEncoder {
 public:
  SignSgdEncoder(std::size_t elems, const EncoderContext& context, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), sums_(elems) {}

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override {
    found_ = sums_.survey(0, elems(), pool, [&](std::size_t begin, std::size_t n) {
      return kernels::survey_magnitudes(input + begin,
                                        residual != nullptr ? residual + begin : nullptr, n);
    });
    return found_.largest_bits;
  }

  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    const auto elems = static_cast<double>(call.elems);
    const float mean = call.elems == 0 ? 0.0F : static_cast<float>(found_.first / elems);
    append_signs(kHead, {.plus = mean, .minus = -mean}, call, out);
    return CodecId::kSignSgd;
  }

  BlockSums sums_;
  Survey found_;
};

class SignSgdCodec final : public Codec {
 public:
  explicit SignSgdCodec(SettingText& text)
      : options_(EncoderOptions::take(text, true, kDefaultLead)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kSignSgd; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:{}", kName, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return signs_max_bytes(kHead, elems);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<SignSgdEncoder>(elems, context, options_);
  }

 private:
  EncoderOptions options_;
};

void check(ByteView payload, std::size_t elems) { check_signs(kName, kHead, payload, elems); }

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  decode_signs(kName, kHead, payload, out, pool);
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  decode_add_signs(kName, kHead, payload, weight, out, pool);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  const float magnitude = read_signs_head(kName, kHead, payload).plus;
  return {{"magnitude", fmt::format("{}", magnitude), {}, {}}};
}

CodecDescription description() {
  return {CodecId::kSignSgd, std::string(kName),
          "one bit a value, which becomes plus or minus the mean magnitude (EF-signSGD)",
          EncoderOptions::describe({}, true, fmt::format("{}", kDefaultLead))};
}

}  // namespace

const CodecEntry& signsgd_codec() {
  static const CodecEntry entry{.description = description(),
                                .traits = {.error = CodecTraits::Error::kScaled},
                                .make = make_from_text<SignSgdCodec>,
                                .check = check,
                                .decode = decode,
                                .decode_add = decode_add,
                                .parameters = parameters,
                                .decode_f64 = nullptr};
  return entry;
}

}  // namespace tersewire
