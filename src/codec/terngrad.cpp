#include "terngrad.h"

#include <algorithm>
#include <array>

#include "errors.h"
#include "shape.h"
#include "ternary_payload.h"

namespace tersewire {
namespace {

// In the order of the parameter's choices: the first is the default.
const std::vector<std::string> kPackingNames{"zre", "base243", "2bit"};
constexpr std::array kPackings{TernaryPacking::kZeroRuns, TernaryPacking::kGroups,
                               TernaryPacking::kTwoBits};

class TernGradCodec final : public Codec {
 public:
  explicit TernGradCodec(SettingText& text) {
    codec_.id = CodecId::kTernGrad;
    codec_.clip = take_ternary_clip(text);
    packing_ = text.take_choice("pack", kPackingNames);
    codec_.format.packing = kPackings.at(packing_);
    codec_.format.bucket_elems = text.take_integer("bucket", 0, 0, kMaxElems);
    codec_.options = EncoderOptions::take(text, false);
  }

  [[nodiscard]] CodecId id() const noexcept override { return codec_.id; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("terngrad:clip={},pack={},bucket={},{}", ternary_clip_text(codec_.clip),
                       kPackingNames[packing_], codec_.format.bucket_elems, codec_.options.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(codec_.format.max_bytes(elems), elems * sizeof(float));
  }
  [[nodiscard]] double adaptive_rate_gain() const override { return ternary_rate_gain(codec_); }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return make_ternary_encoder(elems, context, codec_);
  }

 private:
  TernaryCodec codec_;
  std::size_t packing_;
};

CodecDescription description() {
  return {CodecId::kTernGrad, "terngrad",
          "stochastic ternary values under a shared or local scaler, clipped (TernGrad)",
          EncoderOptions::describe(
              {ternary_clip_parameter(),
               {"pack", "zre", "zre, base243, 2bit",
                "five values in a byte with or without zero-run encoding, or two bits per value"},
               {"bucket", "0", "[0, 2^40]", "values that share a scaler; 0: the whole tensor"}},
              false)};
}

}  // namespace

const CodecEntry& terngrad_codec() {
  using Reading = TernaryReading<CodecId::kTernGrad>;
  static const CodecEntry entry{
      .description = description(),
      .traits = {.error = CodecTraits::Error::kUnbiased, .shares_scalers = true, .splits = true},
      .make = make_from_text<TernGradCodec>,
      .check = Reading::check,
      .decode = Reading::decode,
      .decode_add = Reading::decode_add,
      .parameters = Reading::parameters,
      .decode_levels_add = Reading::decode_levels_add,
      .scalers = Reading::scalers};
  return entry;
}

}  // namespace tersewire
