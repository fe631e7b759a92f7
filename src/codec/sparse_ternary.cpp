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
  std::uint64_t count;
  unsigned k;
  ByteView stream;
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
  parsed.count = reader.varint(max_count, "count of elements sent");
  parsed.k = read_rice_parameter(reader, codec_name(codec));
  parsed.stream = reader.take(reader.left(), "stream");
  return parsed;
}

// Makes readers of the elements sent.
auto reader_maker(CodecId codec, const SparseTernary& payload, std::size_t elems) {
  return [=, &payload] {
    return GapReader(payload.stream, payload.k, true, payload.count, elems, codec_name(codec));
  };
}

}  // namespace

std::size_t sparse_ternary_max_bytes(CodecId codec, std::size_t elems) {
  // With k = 0 an element that is not sent takes a bit, one that is sent takes two.
  const std::size_t stream = elems / 4 + (elems % 4 != 0 ? 1 : 0);
  return (has_minus(codec) ? 2 : 1) * sizeof(float) + varint_bytes(elems) + 1 + stream;
}

void append_sparse_ternary(CodecId codec, SentValues values, const NamedElements& named,
                           Bytes& out) {
  const PositionPlan plan = PositionPlan::of(named);
  append_value(out, values.plus);
  if (has_minus(codec)) append_value(out, values.minus);
  append_varint(out, plan.count);
  append_value(out, plan.k);
  const std::size_t head = out.size();
  out.resize(head + plan.stream_bytes());
  write_positions(named, plan, reinterpret_cast<std::uint8_t*>(out.data() + head));
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
  add("sent", payload.count);
  add("k", payload.k);
  return found;
}

}  // namespace tersewire
