#include "mqe1bit.h"

#include "block_sums.h"
#include "errors.h"
#include "signs_payload.h"

namespace tersewire {
namespace {

constexpr std::string_view kName = "mqe1bit";
constexpr auto kHead = SignsHead::kMeans;
// The published form, 1, diverges at rates that fp32 survives (docs/record.md).
constexpr float kDefaultLead = 2;

float mean(double sum, std::uint64_t count) {
  return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
}

class Mqe1BitEncoder final : public ResidualEncoder {
 public:
  Mqe1BitEncoder(std::size_t elems, const EncoderContext& context, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), sums_(elems) {}

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override {
    found_ = sums_.survey(0, elems(), pool, [&](std::size_t begin, std::size_t n) {
      return kernels::survey_signs(input + begin, residual != nullptr ? residual + begin : nullptr,
                                   n);
    });
    return found_.largest_bits;
  }

  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    const kernels::SignValues means{.plus = mean(found_.first, call.elems - found_.count),
                                    .minus = mean(found_.second, found_.count)};
    append_signs(kHead, means, call, out);
    return CodecId::kMqe1Bit;
  }

  BlockSums sums_;
  Survey found_;
};

class Mqe1BitCodec final : public Codec {
 public:
  explicit Mqe1BitCodec(SettingText& text)
      : options_(EncoderOptions::take(text, true, kDefaultLead)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kMqe1Bit; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:{}", kName, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return signs_max_bytes(kHead, elems);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<Mqe1BitEncoder>(elems, context, options_);
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
  const kernels::SignValues means = read_signs_head(kName, kHead, payload);
  return {{"plus", fmt::format("{}", means.plus), {}, {}},
          {"minus", fmt::format("{}", means.minus), {}, {}}};
}

CodecDescription description() {
  return {CodecId::kMqe1Bit, std::string(kName),
          "one bit a value, which becomes the mean of the values of its sign (1-bit SGD)",
          EncoderOptions::describe({}, true, fmt::format("{}", kDefaultLead))};
}

}  // namespace

const CodecEntry& mqe1bit_codec() {
  static const CodecEntry entry{.description = description(),
                                .traits = {.error = CodecTraits::Error::kScaled},
                                .make = make_from_text<Mqe1BitCodec>,
                                .check = check,
                                .decode = decode,
                                .decode_add = decode_add,
                                .parameters = parameters,
                                .decode_f64 = nullptr};
  return entry;
}

}  // namespace tersewire
