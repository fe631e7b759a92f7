#include <cmath>

#include "byte_io.h"
#include "errors.h"
#include "ternary_groups.h"
#include "three_lc_blocks.h"
#include "three_lc_payload.h"

namespace tersewire {
namespace {

GroupSource groups_of(const ThreeLcPayload& payload, std::size_t elems, const ThreadPool* pool) {
  return {"3lc", payload.body, payload.layout, elems, pool};
}

}  // namespace

ThreeLcPayload parse_three_lc(ByteView payload) {
  ByteReader reader(payload);
  ThreeLcPayload parsed;
  parsed.m = reader.read<float>("3lc m");
  parsed.sparsity_multiplier = reader.read<float>("3lc s");
  const auto layout = reader.read<std::uint8_t>("3lc layout");
  parsed.blocks = layout == kThreeLcBlocksLayout;
  if (!parsed.blocks) parsed.layout = three_lc_layout(layout);
  parsed.body = reader.take(reader.left(), "3lc body");
  if (!std::isfinite(parsed.m) || std::signbit(parsed.m)) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has m = {}, which must be finite and not negative",
         parsed.m);
  }
  const float end = parsed.blocks ? kMaxBlocksMultiplier : 2;
  if (!(parsed.sparsity_multiplier >= 1 && parsed.sparsity_multiplier < end)) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has s = {}, which must be from 1 to below {}",
         parsed.sparsity_multiplier, end);
  }
  return parsed;
}

void check_three_lc(ByteView bytes, std::size_t elems) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  if (payload.blocks) return check_three_lc_blocks(payload.body, elems);
  groups_of(payload, elems, nullptr);
}

void decode_three_lc(ByteView bytes, std::span<float> out, ThreadPool* pool) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  if (payload.blocks) return decode_three_lc_blocks(payload.m, payload.body, out);
  decode_digits(groups_of(payload, out.size(), pool), Scalers(payload.m), out, pool);
}

void decode_add_three_lc(ByteView bytes, float weight, std::span<float> out, ThreadPool* pool) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  if (payload.blocks) return decode_add_three_lc_blocks(payload.m, payload.body, weight, out);
  add_digits(groups_of(payload, out.size(), pool), Scalers(payload.m), weight, out, pool);
}

}  // namespace tersewire
