#include "levels_payload.h"

#include <bit>
#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "level_codes.h"
#include "level_fields.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::uint8_t kDenseBit = 1;
constexpr std::uint8_t kBucketsBit = 2;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

static_assert(kOutputBlockElems == kernels::kMaxLevelFields);

// The bits of a code from 0 to 2 N.
constexpr unsigned code_bits_of(std::uint32_t levels) {
  return static_cast<unsigned>(std::bit_width(2 * levels));
}
static_assert(code_bits_of(kMaxLevels) == kernels::kMaxLevelBits);

// A payload whose head is checked, and whose scalers and body are not yet.
struct LevelsPayload {
  LevelsFormat format;
  const std::byte* scalers;
  const std::uint8_t* body;

  [[nodiscard]] float scaler(std::size_t bucket) const {
    float scaler;
    std::memcpy(&scaler, scalers + bucket * sizeof(scaler), sizeof(scaler));
    return scaler;
  }
  // As far as decoding goes.
  [[nodiscard]] kernels::LevelScale scale(std::size_t bucket) const {
    return {.most = static_cast<std::int32_t>(format.levels()),
            .step = scaler(bucket) / static_cast<float>(format.levels())};
  }
};

LevelsFormat read_format(std::string_view codec, ByteReader& reader) {
  const auto layout = reader.read<std::uint8_t>("layout");
  if (layout > (kDenseBit | kBucketsBit)) {
    fail(ErrorCode::kDataLoss, "the payload of {} has the layout {:#04x}; bits 2 to 7 must be 0",
         codec, layout);
  }
  const auto levels = static_cast<std::uint32_t>(reader.varint(kMaxLevels, "number of levels"));
  const bool has_buckets = (layout & kBucketsBit) != 0;
  const std::uint64_t bucket = has_buckets ? reader.varint(kMaxElems, "bucket length") : 0;
  if (levels == 0 || (has_buckets && bucket == 0)) {
    fail(ErrorCode::kDataLoss,
         "the payload of {} declares {} levels and buckets of {}; neither may be 0", codec, levels,
         bucket);
  }
  return {levels, bucket, (layout & kDenseBit) != 0};
}

LevelsPayload parse(std::string_view codec, ByteView payload, std::size_t elems) {
  ByteReader reader(payload);
  const LevelsFormat format = read_format(codec, reader);
  if (payload.size() != format.bytes(elems)) {
    fail(ErrorCode::kDataLoss, "the payload of {} has {} bytes; {} values take {}", codec,
         payload.size(), elems, format.bytes(elems));
  }
  const std::byte* scalers = payload.data() + reader.offset();
  const std::byte* body = scalers + format.scalers(elems) * sizeof(float);
  return {format, scalers, reinterpret_cast<const std::uint8_t*>(body)};
}

void check_scalers(std::string_view codec, const LevelsPayload& payload, std::size_t elems) {
  for (std::size_t i = 0; i < payload.format.scalers(elems); ++i) {
    // A sign bit makes the bits larger than infinity's, too.
    if (std::bit_cast<std::uint32_t>(payload.scaler(i)) < kernels::kNotFinite) continue;
    fail(ErrorCode::kDataLoss,
         "the payload of {} has the scaler {} for bucket {}; it must be finite and not negative",
         codec, payload.scaler(i), i);
  }
}

LevelsPayload parse_and_check(std::string_view codec, ByteView bytes, std::size_t elems,
                              ThreadPool* pool) {
  const LevelsPayload payload = parse(codec, bytes, elems);
  check_scalers(codec, payload, elems);
  visit_blocks(elems, payload.format.block_elems(), pool, [&](std::size_t begin, std::size_t n) {
    if (payload.format.is_valid_block(payload.body, begin, n)) return;
    fail(ErrorCode::kDataLoss,
         "the payload of {} is malformed from element {} to {}: it has a level outside -{} to {}, "
         "or data after the last level",
         codec, begin, begin + n - 1, payload.format.levels(), payload.format.levels());
  });
  return payload;
}

}  // namespace

LevelsFormat::LevelsFormat(std::uint32_t levels, std::uint64_t bucket_elems, bool dense)
    : levels_(levels),
      bucket_elems_(bucket_elems),
      dense_(dense),
      code_bits_(code_bits_of(levels)),
      words_(2 * levels + 1) {}

void LevelsFormat::append_head(Bytes& out) const {
  const int layout = (dense_ ? kDenseBit : 0) | (bucket_elems_ != 0 ? kBucketsBit : 0);
  append_value(out, static_cast<std::uint8_t>(layout));
  append_varint(out, levels_);
  if (bucket_elems_ != 0) append_varint(out, bucket_elems_);
}

std::size_t LevelsFormat::head_bytes() const {
  return 1 + varint_bytes(levels_) + (bucket_elems_ != 0 ? varint_bytes(bucket_elems_) : 0);
}

std::size_t LevelsFormat::scalers(std::size_t elems) const {
  return bucket_elems_ != 0 ? divide_up(elems, bucket_elems_) : 1;
}

std::size_t LevelsFormat::body_bytes(std::size_t elems) const {
  return dense_ ? divide_up(elems, words_.digits()) * kWordBytes
                : kernels::level_field_bytes(elems, code_bits_);
}

std::size_t LevelsFormat::block_elems() const {
  if (!dense_) return kOutputBlockElems;
  const std::size_t four_words = 4 * words_.digits();
  return kOutputBlockElems / four_words * four_words;
}

void LevelsFormat::pack_block(std::uint32_t* codes, std::size_t begin, std::size_t n,
                              std::uint8_t* body) const {
  if (!dense_)
    return kernels::pack_level_fields(codes, n, code_bits_, body + begin / 8 * code_bits_);
  const std::size_t words = divide_up(n, words_.digits());
  std::fill(codes + n, codes + words * words_.digits(), levels_);
  words_.pack(codes, words, body + begin / words_.digits() * kWordBytes);
}

bool LevelsFormat::is_valid_block(const std::uint8_t* body, std::size_t begin,
                                  std::size_t n) const {
  LevelCodes codes;
  if (!dense_) {
    unpack_block(body, begin, n, codes.data());
    const std::size_t left = n * code_bits_ % 8;
    const std::uint8_t* last = body + begin / 8 * code_bits_ + n * code_bits_ / 8;
    return (left == 0 || *last >> left == 0) &&
           kernels::largest_code(codes.data(), n) <= 2 * levels_;
  }
  const std::size_t words = divide_up(n, words_.digits());
  if (!words_.valid(body + begin / words_.digits() * kWordBytes, words)) return false;
  if (n % words_.digits() == 0) return true;
  unpack_block(body, begin, n, codes.data());
  return std::all_of(codes.data() + n, codes.data() + words * words_.digits(),
                     [&](std::uint32_t code) { return code == levels_; });
}

void LevelsFormat::unpack_block(const std::uint8_t* body, std::size_t begin, std::size_t n,
                                std::uint32_t* codes) const {
  if (!dense_) {
    return kernels::unpack_level_fields(body + begin / 8 * code_bits_, n, code_bits_, codes);
  }
  words_.unpack(body + begin / words_.digits() * kWordBytes, divide_up(n, words_.digits()), codes);
}

LevelsFormat shorter_format(std::uint32_t levels, std::uint64_t bucket_elems, std::size_t elems) {
  const LevelsFormat fields(levels, bucket_elems, false);
  const LevelsFormat dense(levels, bucket_elems, true);
  return dense.body_bytes(elems) < fields.body_bytes(elems) ? dense : fields;
}

void check_levels(std::string_view codec, ByteView payload, std::size_t elems) {
  parse_and_check(codec, payload, elems, nullptr);
}

void decode_levels(std::string_view codec, ByteView bytes, std::span<float> out, ThreadPool* pool) {
  const LevelsPayload payload = parse_and_check(codec, bytes, out.size(), pool);
  const LevelsFormat& format = payload.format;
  fill_blocks(
      out, format.block_elems(), pool, [&](std::size_t begin, std::size_t n, float* values) {
        LevelCodes codes;
        format.unpack_block(payload.body, begin, n, codes.data());
        format.visit_buckets(
            begin, n, [&](std::size_t bucket, std::size_t first, std::size_t count) {
              const std::size_t at = first - begin;
              kernels::level_values(codes.data() + at, count, payload.scale(bucket), values + at);
            });
      });
}

void decode_add_levels(std::string_view codec, ByteView bytes, float weight, std::span<float> out,
                       ThreadPool* pool) {
  const LevelsPayload payload = parse_and_check(codec, bytes, out.size(), pool);
  const LevelsFormat& format = payload.format;
  visit_blocks(out.size(), format.block_elems(), pool, [&](std::size_t begin, std::size_t n) {
    LevelCodes codes;
    format.unpack_block(payload.body, begin, n, codes.data());
    format.visit_buckets(begin, n, [&](std::size_t bucket, std::size_t first, std::size_t count) {
      kernels::add_level_values(codes.data() + (first - begin), count, payload.scale(bucket),
                                weight, out.data() + first);
    });
  });
}

std::vector<CodecParameter> levels_parameters(std::string_view codec, ByteView payload) {
  ByteReader reader(payload);
  const LevelsFormat format = read_format(codec, reader);
  return {{"levels", fmt::format("{}", format.levels()), {}, {}},
          {"bucket", fmt::format("{}", format.bucket_elems()), {}, {}},
          {"dense", format.dense() ? "on" : "off", {}, {}}};
}

}  // namespace tersewire
