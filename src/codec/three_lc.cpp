#include "three_lc.h"

#include <algorithm>

#include "errors.h"
#include "three_lc_payload.h"

namespace tersewire {
namespace {

constexpr std::uint8_t kPartitionsBit = 1;
constexpr std::uint8_t kZeroRunsBit = 2;
constexpr std::uint8_t kLongRunsBit = 4;

const char* on_off(bool on) { return on ? "on" : "off"; }
const char* layout_name(bool partitions) { return partitions ? "partitions" : "neighbours"; }

class ThreeLcCodec final : public Codec {
 public:
  explicit ThreeLcCodec(CodecText& text);

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kThreeLc; }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override;
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(std::size_t elems,
                                                      const EncoderContext& context) const override;

 private:
  float sparsity_multiplier_;
  GroupLayout layout_;
  EncoderOptions options_;
};

ThreeLcCodec::ThreeLcCodec(CodecText& text)
    : sparsity_multiplier_(static_cast<float>(text.take_number("s", 1, 1, 2))),
      layout_{.partitions = text.take_choice("layout", {"neighbours", "partitions"}) == 1,
              .zero_runs = text.take_switch("zre", true),
              .long_runs = text.take_switch("long-runs", false)},
      options_(EncoderOptions::take(text, true)) {
  if (!(sparsity_multiplier_ < 2)) {
    fail(ErrorCode::kInvalidArgument, "codec 3lc: s is 2 as a 32-bit float; choose it below 2");
  }
  if (layout_.long_runs && !layout_.zero_runs) {
    fail(ErrorCode::kInvalidArgument,
         "codec 3lc: long-runs=on extends zero-run encoding; leave zre on with it");
  }
}

std::string ThreeLcCodec::text() const {
  return fmt::format("3lc:s={},layout={},zre={},long-runs={},{}", sparsity_multiplier_,
                     layout_name(layout_.partitions), on_off(layout_.zero_runs),
                     on_off(layout_.long_runs), options_.text());
}

std::size_t ThreeLcCodec::max_encoded_bytes(std::size_t elems) const {
  return std::max(three_lc_max_bytes(elems), elems * sizeof(float));
}

std::unique_ptr<Encoder> ThreeLcCodec::make_encoder(std::size_t elems,
                                                    const EncoderContext& context) const {
  return make_three_lc_encoder(elems, context, sparsity_multiplier_, layout_, options_);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  const ThreeLcPayload parsed = parse_three_lc(payload);
  return {{"m", fmt::format("{}", parsed.m), {}, {}},
          {"s", fmt::format("{}", parsed.sparsity_multiplier), {}, {}},
          {"layout", layout_name(parsed.layout.partitions), {}, {}},
          {"zre", on_off(parsed.layout.zero_runs), {}, {}},
          {"long-runs", on_off(parsed.layout.long_runs), {}, {}}};
}

CodecDescription description() {
  return {
      CodecId::kThreeLc, "3lc",
      "3-value quantization with sparsity multiplication, base-3^5 and zero-run encoding (3LC)",
      EncoderOptions::describe(
          {{"s", "1", "[1, 2)", "sparsity multiplier: higher sends fewer values, learns later"},
           {"layout", "neighbours", "neighbours, partitions", "which five values share a byte"},
           {"zre", "on", "on, off", "zero-run encoding; off: always 1.6 bits a value"},
           {"long-runs", "off", "on, off", "runs of any length: no floor of 0.114 bits a value"}},
          true)};
}

}  // namespace

std::uint8_t three_lc_layout_byte(GroupLayout layout) {
  return static_cast<std::uint8_t>((layout.partitions ? kPartitionsBit : 0) |
                                   (layout.zero_runs ? kZeroRunsBit : 0) |
                                   (layout.long_runs ? kLongRunsBit : 0));
}

GroupLayout three_lc_layout(std::uint8_t byte) {
  const GroupLayout layout{.partitions = (byte & kPartitionsBit) != 0,
                           .zero_runs = (byte & kZeroRunsBit) != 0,
                           .long_runs = (byte & kLongRunsBit) != 0};
  if (three_lc_layout_byte(layout) != byte || (layout.long_runs && !layout.zero_runs)) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has the layout byte {}, which means nothing", byte);
  }
  return layout;
}

const CodecEntry& three_lc_codec() {
  static const CodecEntry entry{.description = description(),
                                .traits = {.error = CodecTraits::Error::kScaled},
                                .make = make_from_text<ThreeLcCodec>,
                                .check = check_three_lc,
                                .decode = decode_three_lc,
                                .decode_add = decode_add_three_lc,
                                .parameters = parameters,
                                .decode_f64 = nullptr};
  return entry;
}

}  // namespace tersewire
