#include "sparse_ternary.h"

#include <cmath>
#include <limits>

#include "byte_io.h"
#include "errors.h"
#include "sparse_output.h"

namespace tersewire {
namespace {

bool has_minus(CodecId codec) { return codec == CodecId::kDryden; }

// A payload's head, checked, and its stream, not yet.
struct SparseTernary {
  SentValues values;
  SignedGaps sent;
};

float read_value(ByteReader& reader, CodecId codec, const char* name) {
  const auto value = reader.read<float>(name);
  if (std::isfinite(value) && (has_minus(codec) || !std::signbit(value))) return value;
  fail(ErrorCode::kDataLoss, "a {} payload has {} = {}, which must be finite{}", codec_name(codec),
       name, value, has_minus(codec) ? "" : " and not negative");
}

SparseTernary parse(CodecId codec, ByteView payload, std::uint64_t max_count) {
  ByteReader reader(payload);
  SparseTernary parsed{};
  parsed.values.plus = read_value(reader, codec, "plus");
  parsed.values.minus = has_minus(codec) ? read_value(reader, codec, "minus") : -parsed.values.plus;
  parsed.sent = SignedGaps::read(reader, max_count, codec_name(codec));
  return parsed;
}

// Makes readers of the elements sent.
auto reader_maker(CodecId codec, const SparseTernary& payload, std::size_t elems) {
  return [=, &payload] { return GapReader(payload.sent, elems, codec_name(codec)); };
}

}  // namespace

std::size_t sparse_ternary_max_bytes(CodecId codec, std::size_t elems) {
  return (has_minus(codec) ? 2 : 1) * sizeof(float) + signed_gaps_max_bytes(elems);
}

void append_sparse_ternary(CodecId codec, SentValues values, const NamedElements& named,
                           Bytes& out) {
  append_value(out, values.plus);
  if (has_minus(codec)) append_value(out, values.minus);
  append_signed_gaps(named, out);
}

void check_sparse_ternary(CodecId codec, ByteView bytes, std::size_t elems) {
  const SparseTernary payload = parse(codec, bytes, elems);
  check_elements(reader_maker(codec, payload, elems)());
}

void decode_sparse_ternary(CodecId codec, ByteView bytes, std::span<float> out) {
  const SparseTernary payload = parse(codec, bytes, out.size());
  const float values[]{payload.values.plus, payload.values.minus};
  fill_sparse(
      reader_maker(codec, payload, out.size()),
      [&](std::size_t, FoundElement element) { return values[element.negative() ? 1 : 0]; }, out);
}

void decode_add_sparse_ternary(CodecId codec, ByteView bytes, float weight, std::span<float> out) {
  const SparseTernary payload = parse(codec, bytes, out.size());
  const float values[]{weight * payload.values.plus, weight * payload.values.minus};
  add_sparse(
      reader_maker(codec, payload, out.size()),
      [&](std::size_t, FoundElement element) { return values[element.negative() ? 1 : 0]; }, out);
}

std::vector<CodecParameter> sparse_ternary_parameters(CodecId codec, ByteView bytes) {
  const SparseTernary payload = parse(codec, bytes, std::numeric_limits<std::uint64_t>::max());
  std::vector<CodecParameter> found;
  const auto add = [&](const char* key, const auto& value) {
    found.push_back({key, fmt::format("{}", value), {}, {}});
  };
  add(has_minus(codec) ? "plus" : "scale", payload.values.plus);
  if (has_minus(codec)) add("minus", payload.values.minus);
  add("sent", payload.sent.count);
  add("k", payload.sent.k);
  return found;
}

}  // namespace tersewire
