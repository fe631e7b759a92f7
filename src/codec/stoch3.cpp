#include "stoch3.h"

#include <algorithm>

#include "errors.h"
#include "ternary_payload.h"

namespace tersewire {
namespace {

class Stoch3Codec final : public Codec {
 public:
  explicit Stoch3Codec(SettingText& text)
      : codec_{.id = CodecId::kStoch3,
               .format = {},
               .clip = take_ternary_clip(text),
               .options = EncoderOptions::take(text, false)} {}

  [[nodiscard]] CodecId id() const noexcept override { return codec_.id; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("stoch3:clip={},{}", ternary_clip_text(codec_.clip), codec_.options.text());
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
};

}  // namespace

const CodecEntry& stoch3_codec() {
  using Reading = TernaryReading<CodecId::kStoch3>;
  static const CodecEntry entry{
      .description = {CodecId::kStoch3, "stoch3",
                      "stochastic ternary values, five in a byte: a baseline of 3LC",
                      EncoderOptions::describe({ternary_clip_parameter("off")}, false)},
      .traits = {.error = CodecTraits::Error::kUnbiased, .shares_scalers = true, .splits = true},
      .make = make_from_text<Stoch3Codec>,
      .check = Reading::check,
      .decode = Reading::decode,
      .decode_add = Reading::decode_add,
      .parameters = Reading::parameters,
      .decode_levels_add = Reading::decode_levels_add,
      .scalers = Reading::scalers};
  return entry;
}

}  // namespace tersewire
