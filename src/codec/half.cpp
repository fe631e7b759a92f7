#include "half.h"

#include <memory>

#include "errors.h"
#include "narrow_payload.h"

namespace tersewire {
namespace {

constexpr NarrowCoding kFp16{CodecId::kFp16, "fp16", kernels::NarrowFormat::kFp16};
constexpr NarrowCoding kBf16{CodecId::kBf16, "bf16", kernels::NarrowFormat::kBf16};

template <const NarrowCoding& kCoding>
class HalfCodec final : public Codec {
 public:
  explicit HalfCodec(SettingText& text) : options_(EncoderOptions::take(text, false)) {}

  [[nodiscard]] CodecId id() const noexcept override { return kCoding.codec; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:{}", kCoding.name, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return elems * sizeof(float);  // where they are not finite
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return make_narrow_encoder(elems, context, kCoding, options_);
  }

 private:
  EncoderOptions options_;
};

template <const NarrowCoding& kCoding>
CodecEntry half_codec(std::string summary) {
  return {
      .description = {kCoding.codec, std::string(kCoding.name), std::move(summary),
                      EncoderOptions::describe({}, false)},
      .traits = {.error = CodecTraits::Error::kBounded,
                 .fits_sums = true,
                 .fits_weights = true,
                 .splits = true},
      .make = make_from_text<HalfCodec<kCoding>>,
      .check = [](ByteView payload, std::size_t elems) { check_narrow(kCoding, payload, elems); },
      .decode = [](ByteView payload, std::span<float> out,
                   ThreadPool* pool) { decode_narrow(kCoding, payload, out, pool); },
      .decode_add =
          [](ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
            decode_add_narrow(kCoding, payload, weight, out, pool);
          }};
}

}  // namespace

const CodecEntry& fp16_codec() {
  static const CodecEntry entry =
      half_codec<kFp16>("IEEE 754 half precision: 16 bits per value, magnitudes up to 65504");
  return entry;
}

const CodecEntry& bf16_codec() {
  static const CodecEntry entry = half_codec<kBf16>(
      "the upper half of a 32-bit float, rounded: 16 bits per value, its whole range");
  return entry;
}

}  // namespace tersewire
