#include "inceptionn.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "bursts.h"
#include "byte_io.h"
#include "errors.h"
#include "residual_encoder.h"
#include "shape.h"

namespace tersewire {
namespace {

using kernels::BurstFormat;
using kernels::kBurstElems;

constexpr std::size_t kHeadBytes = 1;
constexpr unsigned kBoundMask = 0x0F;
constexpr unsigned kBoundedBit = 0x10;
constexpr unsigned kDefaultBoundBits = 10;
constexpr unsigned kMaxBoundBits = 15;
// Bursts that are worth a thread.
constexpr std::size_t kMinPartBursts = 1 << 13;
constexpr std::size_t kMaxParts = 64;

constexpr std::size_t burst_count(std::size_t elems) { return divide_up(elems, kBurstElems); }

std::uint8_t layout_byte(BurstFormat format) {
  return static_cast<std::uint8_t>(format.bound_bits | (format.bounded ? kBoundedBit : 0));
}

const char* mode_name(BurstFormat format) { return format.bounded ? "bounded" : "paper"; }
std::string bound_text(unsigned bits) { return fmt::format("2^-{}", bits); }

BurstFormat parse_format(ByteView payload) {
  if (payload.empty()) {
    fail(ErrorCode::kDataLoss, "an inceptionn payload is empty; it begins with a layout byte");
  }
  const auto byte = std::to_integer<std::uint8_t>(payload[0]);
  const BurstFormat format{.bound_bits = byte & kBoundMask, .bounded = (byte & kBoundedBit) != 0};
  if (format.bound_bits == 0 || layout_byte(format) != byte) {
    fail(ErrorCode::kDataLoss,
         "an inceptionn payload has the layout byte {}; it must be 1 to 15, or 17 to 31", byte);
  }
  return format;
}

// Bursts of a checked payload that are decoded one after the other: streams of equal length, and
// behind the last of them what is left, fewer bursts than there are streams and perhaps a short
// one.
struct Part {
  kernels::BurstStreams in{};
  std::size_t first_elem = 0;
  std::size_t stream_elems = 0;
  std::size_t elems = 0;
};

// A checked payload, cut into parts that can be decoded side by side.
struct Parts {
  BurstFormat format;
  std::array<Part, kMaxParts> parts{};
  std::size_t count = 0;
  const std::uint8_t* end = nullptr;
};

void check_last_burst(const std::uint8_t* burst, std::size_t elems) {
  std::uint16_t tags;
  std::memcpy(&tags, burst, sizeof(tags));
  if (tags >> 2 * (elems % kBurstElems) == 0) return;
  fail(ErrorCode::kDataLoss,
       "the last burst of an inceptionn payload has the tags {:#06x}; those after its {} values "
       "must be 0",
       tags, elems % kBurstElems);
}

// Follows the tags from burst to burst.
class BurstWalk {
 public:
  BurstWalk(ByteView payload, std::size_t bursts)
      : at_(as_u8(payload) + kHeadBytes), end_(as_u8(payload) + payload.size()), bursts_(bursts) {}

  [[nodiscard]] const std::uint8_t* at() const { return at_; }
  [[nodiscard]] const std::uint8_t* end() const { return end_; }

  void skip(std::size_t count) {
    at_ = kernels::skip_bursts(at_, end_, count);
    if (at_ != nullptr) return;
    fail(ErrorCode::kDataLoss, "an inceptionn payload ends before its {} bursts do", bursts_);
  }

  void finish() const {
    if (at_ == end_) return;
    fail(ErrorCode::kDataLoss, "an inceptionn payload has {} bytes after its {} bursts", end_ - at_,
         bursts_);
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  std::size_t bursts_;
};

// Takes the part of values [begin, end) off the walk.
Part walk_part(BurstWalk& walk, std::size_t begin, std::size_t end) {
  Part part{.first_elem = begin, .elems = end - begin};
  const std::size_t whole = part.elems / kBurstElems;
  const std::size_t in_stream = whole / kernels::kBurstStreams;
  part.stream_elems = in_stream * kBurstElems;
  for (const std::uint8_t*& stream : part.in) {
    stream = walk.at();
    walk.skip(in_stream);
  }
  walk.skip(whole % kernels::kBurstStreams);
  if (part.elems % kBurstElems == 0) return part;
  const std::uint8_t* last = walk.at();
  walk.skip(1);
  check_last_burst(last, part.elems);
  return part;
}

Parts check_parts(ByteView payload, std::size_t elems, const ThreadPool* pool) {
  Parts parts{.format = parse_format(payload)};
  const std::size_t bursts = burst_count(elems);
  const auto cut = Partition::of(bursts, std::max(kMinPartBursts, bursts / kMaxParts + 1), pool);
  BurstWalk walk(payload, bursts);
  for (; parts.count < cut.count(); ++parts.count) {
    const std::size_t begin = cut.begin(parts.count) * kBurstElems;
    const std::size_t end = std::min(cut.end(parts.count) * kBurstElems, elems);
    parts.parts[parts.count] = walk_part(walk, begin, end);
  }
  walk.finish();
  parts.end = walk.end();
  return parts;
}

void check(ByteView payload, std::size_t elems) { check_parts(payload, elems, nullptr); }

// Where the streams of a part go.
std::array<float*, kernels::kBurstStreams> stream_outputs(const Part& part, float* out) {
  std::array<float*, kernels::kBurstStreams> outputs;
  for (std::size_t s = 0; s < outputs.size(); ++s) {
    outputs[s] = out + part.first_elem + s * part.stream_elems;
  }
  return outputs;
}

// Calls take(in, i, n) for the bursts of what is left behind the streams, n values from i on; take
// returns a burst's end.
template <typename Take>
void for_rest(const Part& part, const Take& take) {
  const std::uint8_t* in = part.in.back();
  const std::size_t end = part.first_elem + part.elems;
  std::size_t i = part.first_elem + kernels::kBurstStreams * part.stream_elems;
  for (; i < end; i += kBurstElems) in = take(in, i, std::min(kBurstElems, end - i));
}

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  Parts parts = check_parts(payload, out.size(), pool);
  run_parts(pool, parts.count, [&](std::size_t i) {
    Part& part = parts.parts[i];
    kernels::decode_bursts(part.in, parts.end, parts.format, stream_outputs(part, out.data()),
                           part.stream_elems);
    for_rest(part, [&](const std::uint8_t* in, std::size_t e, std::size_t n) {
      return kernels::decode_burst(in, parts.format, out.data() + e, n);
    });
  });
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  Parts parts = check_parts(payload, out.size(), pool);
  run_parts(pool, parts.count, [&](std::size_t i) {
    Part& part = parts.parts[i];
    kernels::decode_add_bursts(part.in, parts.end, parts.format, weight,
                               stream_outputs(part, out.data()), part.stream_elems);
    for_rest(part, [&](const std::uint8_t* in, std::size_t e, std::size_t n) {
      return kernels::decode_add_burst(in, parts.format, weight, out.data() + e, n);
    });
  });
}

class InceptionnEncoder final : public ResidualEncoder {
 public:
  InceptionnEncoder(std::size_t elems, const EncoderContext& context, BurstFormat format,
                    const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), format_(format) {}

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;

  BurstFormat format_;
  std::vector<std::uint8_t*> part_ends_;
};

CodecId InceptionnEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const auto parts = Partition::of(call.elems, kMinPartBursts * kBurstElems, call.pool);
  part_ends_.resize(parts.count());
  const std::size_t start = out.size();
  out.resize(start + kHeadBytes + kernels::max_burst_bytes(call.elems));
  auto* head = reinterpret_cast<std::uint8_t*>(out.data() + start);
  *head = layout_byte(format_);
  // Each part where it would begin at the latest; then they are moved together.
  std::uint8_t* body = head + kHeadBytes;
  const auto region = [&](std::size_t i) {
    return body + kernels::max_burst_bytes(parts.begin(i));
  };
  run_parts(call.pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    part_ends_[i] = kernels::encode_bursts(
        call.input + begin, call.residual != nullptr ? call.residual + begin : nullptr,
        parts.end(i) - begin, format_, region(i));
  });
  std::uint8_t* end = part_ends_[0];
  for (std::size_t i = 1; i < parts.count(); ++i) {
    const auto bytes = static_cast<std::size_t>(part_ends_[i] - region(i));
    std::memmove(end, region(i), bytes);
    end += bytes;
  }
  out.resize(start + static_cast<std::size_t>(end - head));
  return CodecId::kInceptionn;
}

class InceptionnCodec final : public Codec {
 public:
  explicit InceptionnCodec(SettingText& text);

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kInceptionn; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("inceptionn:mode={},bound={},{}", mode_name(format_),
                       bound_text(format_.bound_bits), options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return kHeadBytes + kernels::max_burst_bytes(elems);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<InceptionnEncoder>(elems, context, format_, options_);
  }

 private:
  BurstFormat format_;
  EncoderOptions options_;
};

unsigned take_bound_bits(SettingText& text) {
  const std::string value = text.take_word("bound");
  if (value.empty()) return kDefaultBoundBits;
  for (unsigned bits = 1; bits <= kMaxBoundBits; ++bits) {
    if (value == bound_text(bits)) return bits;
  }
  text.refuse("bound", "2^-1, 2^-2, ... or 2^-15 (a value's 15 bits hold no finer one)", value);
}

InceptionnCodec::InceptionnCodec(SettingText& text)
    : format_{.bound_bits = take_bound_bits(text),
              .bounded = text.take_choice("mode", {"bounded", "paper"}) == 0},
      options_(EncoderOptions::take(text, false)) {}

std::vector<CodecParameter> parameters(ByteView payload) {
  const BurstFormat format = parse_format(payload);
  return {{"mode", mode_name(format), {}, {}}, {"bound", bound_text(format.bound_bits), {}, {}}};
}

CodecDescription description() {
  return {CodecId::kInceptionn, "inceptionn",
          "0, 8, 16 or 32 bits per value by magnitude, in bursts as hardware makes them "
          "(INCEPTIONN)",
          EncoderOptions::describe(
              {{"mode", "bounded", "bounded, paper",
                "bounded keeps the bound; paper is Algorithm 2 to the letter", "paper"},
               {"bound", bound_text(kDefaultBoundBits), "2^-1 to 2^-15",
                "largest error of a value below 1"}},
              false)};
}

}  // namespace

const CodecEntry& inceptionn_codec() {
  static const CodecEntry entry{.description = description(),
                                .traits = {.error = CodecTraits::Error::kBounded,
                                           .fits_sums = true,
                                           .fits_weights = true,
                                           .loses_small_changes = true,
                                           .splits = true},
                                .make = make_from_text<InceptionnCodec>,
                                .check = check,
                                .decode = decode,
                                .decode_add = decode_add,
                                .parameters = parameters};
  return entry;
}

}  // namespace tersewire
