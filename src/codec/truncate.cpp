#include "truncate.h"

#include <algorithm>
#include <array>
#include <memory>

#include "errors.h"
#include "narrow_payload.h"

namespace tersewire {
namespace {

using kernels::NarrowFormat;

// For 16, 22 or 24 dropped bits; nothing for others.
std::optional<NarrowCoding> coding_of(std::uint8_t dropped_bits) {
  const auto coding = [&](NarrowFormat format) {
    return NarrowCoding{CodecId::kTruncate, "truncate", format, dropped_bits};
  };
  switch (dropped_bits) {
    case 16:
      return coding(NarrowFormat::kUpper16);
    case 22:
      return coding(NarrowFormat::kUpper10);
    case 24:
      return coding(NarrowFormat::kUpper8);
    default:
      return {};
  }
}

NarrowCoding parse_head(ByteView payload) {
  if (payload.empty()) {
    fail(ErrorCode::kDataLoss, "a payload of truncate is empty; it begins with 16, 22 or 24");
  }
  const auto head = std::to_integer<std::uint8_t>(payload[0]);
  if (const auto coding = coding_of(head)) return *coding;
  fail(ErrorCode::kDataLoss, "a payload of truncate drops {} bits; it must be 16, 22 or 24", head);
}

class TruncateCodec final : public Codec {
 public:
  explicit TruncateCodec(SettingText& text)
      : dropped_bits_(
            std::array<std::uint8_t, 3>{16, 22, 24}[text.take_choice("bits", {"16", "22", "24"})]),
        options_(EncoderOptions::take(text, false)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kTruncate; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("truncate:bits={},{}", dropped_bits_, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(narrow_payload_bytes(*coding_of(dropped_bits_), elems), elems * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return make_narrow_encoder(elems, context, *coding_of(dropped_bits_), options_);
  }

 private:
  std::uint8_t dropped_bits_;
  EncoderOptions options_;
};

void check(ByteView payload, std::size_t elems) {
  check_narrow(parse_head(payload), payload, elems);
}

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  decode_narrow(parse_head(payload), payload, out, pool);
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  decode_add_narrow(parse_head(payload), payload, weight, out, pool);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  return {{"bits", fmt::format("{}", *parse_head(payload).head), {}, {}}};
}

}  // namespace

const CodecEntry& truncate_codec() {
  static const CodecEntry entry{
      .description = {CodecId::kTruncate, "truncate",
                      "32-bit floats without their lower bits (INCEPTIONN's comparison)",
                      EncoderOptions::describe(
                          {{"bits", "16", "16, 22, 24", "how many lower bits are dropped"}},
                          false)},
      .traits = {.error = CodecTraits::Error::kBounded, .fits_weights = true, .splits = true},
      .make = make_from_text<TruncateCodec>,
      .check = check,
      .decode = decode,
      .decode_add = decode_add,
      .parameters = parameters};
  return entry;
}

}  // namespace tersewire
