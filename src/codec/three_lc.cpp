#include "three_lc.h"

#include <algorithm>

#include "errors.h"
#include "three_lc_blocks.h"
#include "three_lc_payload.h"

namespace tersewire {
namespace {

constexpr std::uint8_t kPartitionsBit = 1;
constexpr std::uint8_t kZeroRunsBit = 2;

// 30 times fewer bits of normally distributed values, and blocks whose scales cost 1/32 of a bit.
constexpr double kDefaultBlocksMultiplier = 1.25;
constexpr std::uint64_t kDefaultBlockElems = 256;

// Near the inverse of what is sent at once of normally distributed values (docs/codecs.md).
float default_lead(float sparsity_multiplier) { return 2 * sparsity_multiplier - 0.5F; }

const char* on_off(bool on) { return on ? "on" : "off"; }
const char* layout_name(bool partitions) { return partitions ? "partitions" : "neighbours"; }

class PaperCodec final : public Codec {
 public:
  explicit PaperCodec(SettingText& text);

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

PaperCodec::PaperCodec(SettingText& text)
    : sparsity_multiplier_(static_cast<float>(text.take_number("s", 1, 1, 2))),
      layout_{.partitions = text.take_choice("layout", {"neighbours", "partitions"}) == 1,
              .zero_runs = text.take_switch("zre", true)},
      options_(EncoderOptions::take(text, true)) {
  if (!(sparsity_multiplier_ < 2)) {
    fail(ErrorCode::kInvalidArgument, "codec 3lc: s is 2 as a 32-bit float; choose it below 2");
  }
  const std::string block = text.take_word("block");
  if (!block.empty()) text.refuse("block", "omitted with mode=paper", block);
}

std::string PaperCodec::text() const {
  return fmt::format("3lc:mode=paper,s={},layout={},zre={},{}", sparsity_multiplier_,
                     layout_name(layout_.partitions), on_off(layout_.zero_runs), options_.text());
}

std::size_t PaperCodec::max_encoded_bytes(std::size_t elems) const {
  return std::max(three_lc_max_bytes(elems), elems * sizeof(float));
}

std::unique_ptr<Encoder> PaperCodec::make_encoder(std::size_t elems,
                                                  const EncoderContext& context) const {
  return make_three_lc_encoder(elems, context, sparsity_multiplier_, layout_, options_);
}

class BlocksCodec final : public Codec {
 public:
  explicit BlocksCodec(SettingText& text);

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kThreeLc; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("3lc:mode=blocks,s={},block={},{}", sparsity_multiplier_, block_elems_,
                       options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(three_lc_blocks_max_bytes(elems, block_elems_), elems * sizeof(float));
  }
  // Halfway to the lead: s + 1/4 by default.
  [[nodiscard]] double adaptive_rate_gain() const override {
    return (1 + static_cast<double>(options_.lead)) / 2;
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return make_three_lc_blocks_encoder(elems, context, sparsity_multiplier_, block_elems_,
                                        options_);
  }

 private:
  float sparsity_multiplier_;
  std::size_t block_elems_;
  EncoderOptions options_;
};

BlocksCodec::BlocksCodec(SettingText& text)
    : sparsity_multiplier_(static_cast<float>(
          text.take_number("s", kDefaultBlocksMultiplier, 1, kMaxBlocksMultiplier))),
      block_elems_(static_cast<std::size_t>(
          text.take_integer("block", kDefaultBlockElems, kMinBlockElems, kMaxBlockElems))),
      options_(EncoderOptions::take(text, true, default_lead(sparsity_multiplier_))) {
  if (!(sparsity_multiplier_ < kMaxBlocksMultiplier)) {
    fail(ErrorCode::kInvalidArgument, "codec 3lc: s is {0} as a 32-bit float; choose it below {0}",
         kMaxBlocksMultiplier);
  }
  if (block_elems_ % kMinBlockElems != 0) {
    text.refuse("block", fmt::format("a multiple of {}", kMinBlockElems),
                std::to_string(block_elems_));
  }
  for (const char* key : {"layout", "zre"}) {
    const std::string value = text.take_word(key);
    if (!value.empty()) text.refuse(key, "omitted, or given with mode=paper", value);
  }
}

std::shared_ptr<const Codec> make(SettingText& text) {
  if (text.take_choice("mode", {"blocks", "paper"}) == 1) return std::make_shared<PaperCodec>(text);
  return std::make_shared<BlocksCodec>(text);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  const ThreeLcPayload parsed = parse_three_lc(payload);
  std::vector<CodecParameter> found{{"mode", parsed.blocks ? "blocks" : "paper", {}, {}},
                                    {"m", fmt::format("{}", parsed.m), {}, {}},
                                    {"s", fmt::format("{}", parsed.sparsity_multiplier), {}, {}}};
  if (parsed.blocks) return found;
  found.push_back({"layout", layout_name(parsed.layout.partitions), {}, {}});
  found.push_back({"zre", on_off(parsed.layout.zero_runs), {}, {}});
  return found;
}

CodecDescription description() {
  return {CodecId::kThreeLc, "3lc",
          "3-value quantization with sparsity multiplication and error accumulation (3LC)",
          EncoderOptions::describe(
              {{"mode", "blocks", "blocks, paper",
                "blocks: a scale per block and a lead, accurate in short runs; paper: as published",
                "paper"},
               {"s", "1.25; paper: 1", "[1, 16); paper: [1, 2)",
                "sparsity multiplier: higher sends fewer values, later"},
               {"block", "256", "64 to 4096", "values that share a scale; mode=blocks"},
               {"layout", "neighbours", "neighbours, partitions",
                "which five values share a byte; mode=paper"},
               {"zre", "on", "on, off", "zero-run encoding; off: 1.6 bits per value; mode=paper"}},
              true, "2 s - 0.5; paper: 1")};
}

}  // namespace

std::uint8_t three_lc_layout_byte(GroupLayout layout) {
  return static_cast<std::uint8_t>((layout.partitions ? kPartitionsBit : 0) |
                                   (layout.zero_runs ? kZeroRunsBit : 0));
}

GroupLayout three_lc_layout(std::uint8_t byte) {
  const GroupLayout layout{.partitions = (byte & kPartitionsBit) != 0,
                           .zero_runs = (byte & kZeroRunsBit) != 0};
  if (three_lc_layout_byte(layout) != byte) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has the unknown layout byte {}", byte);
  }
  return layout;
}

const CodecEntry& three_lc_codec() {
  static const CodecEntry entry{
      .description = description(),
      .traits = {.error = CodecTraits::Error::kScaled, .adaptive_means_without_residual = true},
      .make = make,
      .check = check_three_lc,
      .decode = decode_three_lc,
      .decode_add = decode_add_three_lc,
      .parameters = parameters};
  return entry;
}

}  // namespace tersewire
