#include "ternary_payload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"
#include "shape.h"
#include "ternary_groups.h"
#include "ternary_unpack.h"

namespace tersewire {
namespace {

constexpr std::uint8_t kPackingMask = 3;
constexpr std::uint8_t kBucketsBit = 4;
constexpr std::size_t kPairsPerByte = 4;

const char* packing_name(TernaryPacking packing) {
  constexpr std::array<const char*, 3> kNames{"2bit", "base243", "zre"};
  return kNames[static_cast<std::size_t>(packing)];
}

// A payload whose head is checked, and whose body is not yet.
struct TernaryPayload {
  TernaryFormat format;
  ByteView scalers;
  ByteView body;

  [[nodiscard]] float scaler(std::size_t bucket) const {
    float scaler;
    std::memcpy(&scaler, scalers.data() + bucket * sizeof(scaler), sizeof(scaler));
    return scaler;
  }
};

TernaryFormat read_format(CodecId codec, ByteReader& reader) {
  const auto layout = reader.read<std::uint8_t>("layout");
  const std::uint8_t packing = layout & kPackingMask;
  const bool buckets = (layout & kBucketsBit) != 0;
  if (packing > static_cast<std::uint8_t>(TernaryPacking::kZeroRuns) ||
      (layout & ~(kPackingMask | kBucketsBit)) != 0) {
    fail(ErrorCode::kDataLoss, "a {} payload has the unknown layout byte {}", codec_name(codec),
         layout);
  }
  if (codec == CodecId::kStoch3 && layout != static_cast<std::uint8_t>(TernaryPacking::kGroups)) {
    fail(ErrorCode::kDataLoss, "a stoch3 payload has the layout byte {} where 1 is expected",
         layout);
  }
  TernaryFormat format{.packing = static_cast<TernaryPacking>(packing), .bucket_elems = 0};
  if (!buckets) return format;
  format.bucket_elems = reader.varint(kMaxElems, "bucket");
  if (format.bucket_elems == 0) {
    fail(ErrorCode::kDataLoss, "a {} payload has buckets of 0 values, which must be 1 or more",
         codec_name(codec));
  }
  return format;
}

TernaryPayload parse(CodecId codec, ByteView bytes, std::size_t elems) {
  ByteReader reader(bytes);
  TernaryPayload payload;
  payload.format = read_format(codec, reader);
  const std::size_t scalers = payload.format.scalers(elems);
  if (scalers > reader.left() / sizeof(float)) {
    fail(ErrorCode::kDataLoss, "a {} payload has no room for {} scalers in {} bytes",
         codec_name(codec), scalers, reader.left());
  }
  payload.scalers = reader.take(scalers * sizeof(float), "scalers");
  payload.body = reader.take(reader.left(), "body");
  for (std::size_t i = 0; i < scalers; ++i) {
    // Above infinity lie NaN and everything with a sign bit.
    if (std::bit_cast<std::uint32_t>(payload.scaler(i)) < kernels::kNotFinite) continue;
    fail(ErrorCode::kDataLoss,
         "a {} payload has the scaler {}, which must be finite and not "
         "negative",
         codec_name(codec), payload.scaler(i));
  }
  return payload;
}

// A checked body of two bits a digit.
class PairSource final : public DigitSource {
 public:
  PairSource(CodecId codec, ByteView body, std::size_t elems, const ThreadPool* pool)
      : body_(as_u8(body)),
        cut_(Partition::of(elems, kMinPartGroups * kernels::kDigitsPerGroup, pool)) {
    const std::size_t bytes = divide_up(elems, kPairsPerByte);
    if (body.size() != bytes) {
      fail(ErrorCode::kDataLoss, "a {} payload has {} bytes of digits where {} are expected",
           codec_name(codec), body.size(), bytes);
    }
    if (!kernels::are_pairs(body_, bytes)) {
      fail(ErrorCode::kDataLoss, "a {} payload has a digit of 2, which is invalid",
           codec_name(codec));
    }
    const std::size_t left = elems % kPairsPerByte;
    if (left != 0 && body_[bytes - 1] >> 2 * left != 0) {
      fail(ErrorCode::kDataLoss, "a {} payload has a digit after its last element",
           codec_name(codec));
    }
  }

  [[nodiscard]] std::size_t parts() const override { return cut_.count(); }

  void read(std::size_t part, std::size_t, const DigitSink& sink) const override {
    constexpr std::size_t kBlockPairs = kernels::kBlockElems / 32;
    constexpr std::size_t kBlockBytes = kernels::kBlockElems / kPairsPerByte;
    for (std::size_t i = cut_.begin(part); i < cut_.end(part); i += kernels::kBlockElems) {
      const std::size_t n = std::min(kernels::kBlockElems, cut_.end(part) - i);
      const std::uint8_t* pairs = body_ + i / kPairsPerByte;
      std::array<std::uint8_t, kBlockBytes> last{};
      if (n < kernels::kBlockElems) {
        std::memcpy(last.data(), pairs, divide_up(n, kPairsPerByte));
        pairs = last.data();
      }
      kernels::DigitBits bits;
      kernels::unpack_pairs(pairs, kBlockPairs, bits.sent.data(), bits.negative.data());
      sink({.first = i,
            .n = n,
            .few = false,
            .bits = {bits.sent.data(), bits.negative.data(), 0},
            .list = {}});
    }
  }

 private:
  const std::uint8_t* body_;
  Partition cut_;
};

// Checks the body and calls use(source, scalers).
template <typename Use>
void with_digits(CodecId codec, ByteView bytes, std::size_t elems, const ThreadPool* pool,
                 const Use& use) {
  const TernaryPayload payload = parse(codec, bytes, elems);
  const Scalers scalers = payload.format.bucket_elems == 0
                              ? Scalers(payload.scaler(0))
                              : Scalers(payload.scalers, payload.format.bucket_elems);
  if (payload.format.packing == TernaryPacking::kTwoBits) {
    return use(PairSource(codec, payload.body, elems, pool), scalers);
  }
  const GroupLayout layout{.partitions = false,
                           .zero_runs = payload.format.packing == TernaryPacking::kZeroRuns};
  use(GroupSource(codec_name(codec), payload.body, layout, elems, pool), scalers);
}

}  // namespace

std::size_t TernaryFormat::head_bytes() const {
  return 1 + (bucket_elems != 0 ? varint_bytes(bucket_elems) : 0);
}

void TernaryFormat::append_head(Bytes& out) const {
  const auto number = static_cast<std::uint8_t>(packing);
  append_value<std::uint8_t>(out, bucket_elems != 0 ? number | kBucketsBit : number);
  if (bucket_elems != 0) append_varint(out, bucket_elems);
}

std::size_t TernaryFormat::scalers(std::size_t elems) const {
  return bucket_elems == 0 ? 1 : divide_up(elems, bucket_elems);
}

std::size_t TernaryFormat::max_body_bytes(std::size_t elems) const {
  return packing == TernaryPacking::kTwoBits ? divide_up(elems, kPairsPerByte) : group_count(elems);
}

template <CodecId kCodec>
void TernaryReading<kCodec>::check(ByteView payload, std::size_t elems) {
  with_digits(kCodec, payload, elems, nullptr, [](const DigitSource&, const Scalers&) {});
}

template <CodecId kCodec>
void TernaryReading<kCodec>::decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  with_digits(kCodec, payload, out.size(), pool,
              [&](const DigitSource& source, const Scalers& scalers) {
                decode_digits(source, scalers, out, pool);
              });
}

template <CodecId kCodec>
void TernaryReading<kCodec>::decode_add(ByteView payload, float weight, std::span<float> out,
                                        ThreadPool* pool) {
  with_digits(kCodec, payload, out.size(), pool,
              [&](const DigitSource& source, const Scalers& scalers) {
                add_digits(source, scalers, weight, out, pool);
              });
}

template <CodecId kCodec>
void TernaryReading<kCodec>::decode_levels_add(ByteView payload, std::span<std::int32_t> levels) {
  with_digits(kCodec, payload, levels.size(), nullptr,
              [&](const DigitSource& source, const Scalers&) { add_digit_levels(source, levels); });
}

template <CodecId kCodec>
PayloadScalers TernaryReading<kCodec>::scalers(ByteView payload, std::size_t elems) {
  const TernaryPayload parsed = parse(kCodec, payload, elems);
  PayloadScalers found{parsed.format.bucket_elems, std::vector<float>(parsed.scalers.size() / 4)};
  if (!found.scalers.empty()) {
    std::memcpy(found.scalers.data(), parsed.scalers.data(), parsed.scalers.size());
  }
  return found;
}

template <CodecId kCodec>
std::vector<CodecParameter> TernaryReading<kCodec>::parameters(ByteView payload) {
  ByteReader reader(payload);
  const TernaryFormat format = read_format(kCodec, reader);
  std::vector<CodecParameter> parameters{
      {"pack", packing_name(format.packing), {}, {}},
      {"bucket", fmt::format("{}", format.bucket_elems), {}, {}}};
  if (format.bucket_elems == 0) {
    parameters.push_back({"scaler", fmt::format("{}", reader.read<float>("scaler")), {}, {}});
  }
  return parameters;
}

template struct TernaryReading<CodecId::kTernGrad>;
template struct TernaryReading<CodecId::kStoch3>;

}  // namespace tersewire
