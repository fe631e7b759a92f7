#include "oland_raj.h"

#include <algorithm>
#include <optional>

#include "errors.h"
#include "oland_raj_payload.h"

namespace tersewire {
namespace {

constexpr double kMaxFloor = 12;
// An entropy of 16 bins is at most so many bits.
constexpr unsigned kMaxEntropyBits = 4;
// Layout, least and greatest value as doubles, N.
constexpr std::size_t kMaxHeadBytes = 18;

// The number that a word is, within bounds.
template <typename T>
std::optional<T> number_in(std::string_view word, T low, T high) {
  const auto number = parsed_number<T>(word);
  return number && *number >= low && *number <= high ? number : std::nullopt;
}

OlandRajSettings take_settings(SettingText& text) {
  OlandRajSettings settings;
  const std::string bits = text.take_word("bits");
  const std::string floor = text.take_word("c");
  if (!bits.empty() && bits != "auto") {
    const auto number = number_in<unsigned>(bits, 1, kMaxIndexBits);
    if (!number) text.refuse("bits", "auto or a whole number from 1 to 16", bits);
    if (!floor.empty() || !text.take_word("bits-from").empty()) {
      fail(ErrorCode::kInvalidArgument,
           "codec oland-raj: with bits={} c and bits-from have no effect; omit them", bits);
    }
    return {.from = BitsFrom::kGiven, .floor = 0, .given = *number};
  }
  const bool gradient = text.take_choice("bits-from", {"entropy", "gradient"}) == 1;
  settings.from = gradient ? BitsFrom::kGradient : BitsFrom::kEntropy;
  if (floor.empty()) return settings;
  const auto number = number_in<double>(floor, 0, kMaxFloor);
  if (!number) text.refuse("c", "a number from 0 to 12", floor);
  settings.floor = *number;
  return settings;
}

class OlandRajCodec final : public Codec {
 public:
  explicit OlandRajCodec(SettingText& text)
      : settings_(take_settings(text)), options_(EncoderOptions::take(text, false)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kOlandRaj; }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] bool needs_gradient() const override {
    return settings_.from == BitsFrom::kGradient;
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override;
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return make_oland_raj_encoder(elems, context, settings_, options_);
  }

 private:
  [[nodiscard]] unsigned most_bits() const;

  OlandRajSettings settings_;
  EncoderOptions options_;
};

std::string OlandRajCodec::text() const {
  if (settings_.from == BitsFrom::kGiven) {
    return fmt::format("oland-raj:bits={},{}", settings_.given, options_.text());
  }
  return fmt::format("oland-raj:c={},bits-from={},{}", settings_.floor,
                     settings_.from == BitsFrom::kGradient ? "gradient" : "entropy",
                     options_.text());
}

unsigned OlandRajCodec::most_bits() const {
  switch (settings_.from) {
    case BitsFrom::kGiven:
      return settings_.given;
    case BitsFrom::kEntropy:
      return kMaxEntropyBits + static_cast<unsigned>(std::ceil(settings_.floor));
    default:
      return kMaxIndexBits;
  }
}

std::size_t OlandRajCodec::max_encoded_bytes(std::size_t elems) const {
  return std::max(kMaxHeadBytes + fixed_body_bytes(elems, most_bits()), elems * sizeof(float));
}

std::string body_name(OlandRajBody body) {
  if (body == OlandRajBody::kConstant) return "constant";
  return body == OlandRajBody::kFixed ? "fixed" : "huffman";
}

// In the fewest digits that say it.
std::string extreme_text(const OlandRajHead& head, double value) {
  return head.f64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
}

std::vector<CodecParameter> parameters(ByteView payload) {
  ByteReader reader(payload);
  const OlandRajHead head = read_oland_raj_head(reader);
  std::vector<CodecParameter> found{{"body", body_name(head.body), {}, {}},
                                    {"element", head.f64 ? "f64" : "f32", {}, {}},
                                    {"min", extreme_text(head, head.min), {}, {}}};
  if (head.body == OlandRajBody::kConstant) return found;
  found.push_back({"max", extreme_text(head, head.max), {}, {}});
  found.push_back({"bits", fmt::format("{}", head.bits), {}, {}});
  return found;
}

CodecDescription description() {
  return {CodecId::kOlandRaj, "oland-raj",
          "uniform quantization to as many bits as entropy asks for, and Huffman codes (Oland & "
          "Raj); for weights",
          EncoderOptions::describe(
              {{"bits", "auto", "auto, 1 to 16", "bits of an index; auto: as bits-from and c say"},
               {"bits-from", "entropy", "entropy, gradient", "what the bits above c come from"},
               {"c", "6", "[0, 12]",
                "the quantization floor: bits above the entropy or the gradient's logarithm"}},
              false)};
}

}  // namespace

const CodecEntry& oland_raj_codec() {
  static const CodecEntry entry{
      .description = description(),
      .traits = {.error = CodecTraits::Error::kScaled, .fits_weights = true, .splits = true},
      .make = make_from_text<OlandRajCodec>,
      .check = check_oland_raj,
      .decode = decode_oland_raj,
      .decode_add = decode_add_oland_raj,
      .parameters = parameters,
      .decode_f64 = decode_f64_oland_raj};
  return entry;
}

}  // namespace tersewire
