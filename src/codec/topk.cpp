#include "topk.h"

#include <algorithm>
#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"
#include "largest_selection.h"
#include "selection.h"
#include "shape.h"
#include "sparse_output.h"

namespace tersewire {
namespace {

constexpr double kDefaultFraction = 0.05;
// The published form, 1, diverges at rates that fp32 survives (evidence/blocks).
constexpr float kDefaultLead = 2;
constexpr std::uint8_t kBitmap = 0;
constexpr std::uint8_t kGaps = 1;
// Values that are added and looked at while they are in the first cache.
constexpr std::size_t kTileWords = 32;
// Words that are worth a thread.
constexpr std::size_t kMinPartWords = 1 << 10;

constexpr std::size_t bitmap_bytes(std::size_t elems) { return divide_up(elems, 8); }

class TopKEncoder final : public LargestSelection {
 public:
  using LargestSelection::LargestSelection;

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;
  // Copies the values of the elements sent to `out` and leaves T in the residual, 0 where sent;
  // for the elements of words [begin, end).
  void send(const EncodeCall& call, std::size_t begin, std::size_t end, std::byte* out) const;
};

CodecId TopKEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const NamedElements named{sent(), {}};
  const PositionPlan plan = PositionPlan::of(named);
  const bool gaps = 1 + plan.stream_bytes() < bitmap_bytes(call.elems);
  append_value(out, gaps ? kGaps : kBitmap);
  append_varint(out, plan.count);
  const std::size_t values_at = out.size();
  const std::size_t positions_at = values_at + plan.count * sizeof(float);
  out.resize(positions_at + (gaps ? 1 + plan.stream_bytes() : bitmap_bytes(call.elems)));
  if (gaps) {
    out[positions_at] = std::byte{plan.k};
    write_positions(named, plan, reinterpret_cast<std::uint8_t*>(out.data() + positions_at + 1));
  } else if (call.elems > 0) {
    std::memcpy(out.data() + positions_at, sent().data(), bitmap_bytes(call.elems));
  }

  const auto parts = Partition::of(sent().size(), kMinPartWords, call.pool);
  run_parts(call.pool, parts.count(), [&](std::size_t i) {
    const std::uint64_t before = count_named(sent().first(parts.begin(i)));
    send(call, parts.begin(i), parts.end(i), out.data() + values_at + before * sizeof(float));
  });
  return CodecId::kTopK;
}

// From the end, which the first pass has left in the cache.
void TopKEncoder::send(const EncodeCall& call, std::size_t begin, std::size_t end,
                       std::byte* out) const {
  const float* total = call.residual != nullptr ? call.residual : call.input;
  out += count_named(sent().subspan(begin, end - begin)) * sizeof(float);
  while (end > begin) {
    const std::size_t tile = end - std::min(kTileWords, end - begin);
    if (call.residual != nullptr) {
      const std::size_t first = tile * kernels::kWordElems;
      const std::size_t n = std::min(end * kernels::kWordElems, call.elems) - first;
      kernels::add(call.residual + first, call.input + first, n);
    }
    list_named(sent(), tile, end, [&](std::size_t first, auto places) {
      out -= places.size() * sizeof(float);
      for (std::size_t i = 0; i < places.size(); ++i) {
        std::memcpy(out + i * sizeof(float), total + first + places[i], sizeof(float));
        if (call.residual != nullptr) call.residual[first + places[i]] = 0;
      }
    });
    end = tile;
  }
}

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(SettingText& text)
      : fraction_(take_fraction(text, kDefaultFraction)),
        options_(EncoderOptions::take(text, true, kDefaultLead)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kTopK; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("topk:fraction={},{}", fraction_, options_.text());
  }
  // Where all are sent, whose positions are a bitmap then. A raw tensor is shorter.
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return 1 + varint_bytes(elems) + elems * sizeof(float) + bitmap_bytes(elems);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<TopKEncoder>(elems, context, fraction_, options_);
  }

 private:
  double fraction_;
  EncoderOptions options_;
};

// --- Reading

// A payload, its positions not checked.
struct TopKPayload {
  bool gaps;
  std::uint64_t count;
  ByteView values;
  unsigned k;
  ByteView positions;

  [[nodiscard]] float value(std::size_t index) const {
    float value;
    std::memcpy(&value, values.data() + index * sizeof(value), sizeof(value));
    return value;
  }
};

TopKPayload parse(ByteView payload, std::uint64_t max_count) {
  ByteReader reader(payload);
  TopKPayload parsed{};
  const auto layout = reader.read<std::uint8_t>("topk layout");
  if (layout != kBitmap && layout != kGaps) {
    fail(ErrorCode::kDataLoss, "a topk payload has the layout byte {}, which must be 0 or 1",
         layout);
  }
  parsed.gaps = layout == kGaps;
  parsed.count = reader.varint(max_count, "count of elements sent");
  parsed.values = reader.take(parsed.count * sizeof(float), "values");
  if (parsed.gaps) parsed.k = read_rice_parameter(reader, "topk");
  parsed.positions = reader.take(reader.left(), "positions");
  return parsed;
}

// Calls use(make) with what makes readers of the elements sent.
template <typename Use>
void with_reader(const TopKPayload& payload, std::size_t elems, const Use& use) {
  if (payload.gaps) {
    return use([&] {
      return GapReader(payload.positions, payload.k, false, payload.count, elems, "topk");
    });
  }
  use([&] { return BitmapReader(payload.positions, payload.count, elems, "topk"); });
}

void check(ByteView bytes, std::size_t elems) {
  with_reader(parse(bytes, elems), elems, [](const auto& make) { check_elements(make()); });
}

void decode(ByteView bytes, std::span<float> out, ThreadPool*) {
  const TopKPayload payload = parse(bytes, out.size());
  with_reader(payload, out.size(), [&](const auto& make) {
    fill_sparse(
        make, [&](std::size_t i, FoundElement) { return payload.value(i); }, out);
  });
}

void decode_add(ByteView bytes, float weight, std::span<float> out, ThreadPool*) {
  const TopKPayload payload = parse(bytes, out.size());
  with_reader(payload, out.size(), [&](const auto& make) {
    add_sparse(
        make, [&](std::size_t i, FoundElement) { return weight * payload.value(i); }, out);
  });
}

std::vector<CodecParameter> parameters(ByteView bytes) {
  const TopKPayload payload = parse(bytes, bytes.size());
  return {{"layout", payload.gaps ? "gaps" : "bitmap", {}, {}},
          {"sent", fmt::format("{}", payload.count), {}, {}}};
}

}  // namespace

const CodecEntry& topk_codec() {
  static const CodecEntry entry{
      .description = {CodecId::kTopK, "topk",
                      "the largest values, unquantized (3LC's \"5% sparsification\")",
                      EncoderOptions::describe({describe_fraction("0.05")}, true,
                                               fmt::format("{}", kDefaultLead))},
      .traits = {.error = CodecTraits::Error::kUnsent},
      .make = make_from_text<TopKCodec>,
      .check = check,
      .decode = decode,
      .decode_add = decode_add,
      .parameters = parameters};
  return entry;
}

}  // namespace tersewire
