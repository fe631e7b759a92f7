#include "levels.h"

#include <algorithm>
#include <bit>

#include "byte_io.h"
#include "errors.h"
#include "float_mode.h"
#include "levels_payload.h"
#include "scaling.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::string_view kName = "levels";

void check_scalers(std::span<const float> scalers, std::size_t expected) {
  if (scalers.size() != expected) {
    fail(ErrorCode::kInvalidArgument, "there are {} scalers, but the sums take {}", scalers.size(),
         expected);
  }
  for (const float scaler : scalers) {
    // A sign bit makes the bits larger than infinity's, too.
    if (std::bit_cast<std::uint32_t>(scaler) < kernels::kNotFinite) continue;
    fail(ErrorCode::kInvalidArgument, "the scaler {} must be finite and not negative", scaler);
  }
}

void check_sums(std::span<const std::int32_t> sums, std::int64_t workers) {
  const auto too_large =
      std::ranges::find_if(sums, [&](std::int64_t sum) { return sum < -workers || sum > workers; });
  if (too_large == sums.end()) return;
  fail(ErrorCode::kInvalidArgument, "the sum {} of element {} is outside -{} to {}", *too_large,
       too_large - sums.begin(), workers, workers);
}

void check(ByteView payload, std::size_t elems) { check_levels(kName, payload, elems); }

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  decode_levels(kName, payload, out, pool);
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  decode_add_levels(kName, payload, weight, out, pool);
}

std::vector<CodecParameter> parameters(ByteView payload) {
  return levels_parameters(kName, payload);
}

}  // namespace

void append_levels(std::span<const std::int32_t> sums, std::uint32_t workers,
                   std::span<const float> scalers, std::uint64_t bucket_elems, bool dense,
                   Bytes& out) {
  const DefaultFloatMode mode;
  if (workers == 0 || workers > kMaxLevels || bucket_elems > kMaxElems) {
    fail(ErrorCode::kInvalidArgument,
         "levels of {} workers in buckets of {} values: there may be 1 to {} workers, and buckets "
         "of at most {}",
         workers, bucket_elems, kMaxLevels, kMaxElems);
  }
  const LevelsFormat format(workers, bucket_elems, dense);
  check_scalers(scalers, format.scalers(sums.size()));
  check_sums(sums, workers);
  out.reserve(out.size() + format.bytes(sums.size()));
  format.append_head(out);
  for (const float scaler : scalers) {
    append_value(out, std::min(scaler, kernels::kLargestDividedScale));
  }
  const auto make = [&](std::size_t begin, std::size_t n, std::uint32_t* codes) {
    for (std::size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<std::uint32_t>(sums[begin + i]) + workers;
    }
  };
  append_levels_body(format, sums.size(), nullptr, make, out);
}

const CodecEntry& levels_codec() {
  static const CodecEntry entry{
      .description = {CodecId::kLevels,
                      std::string(kName),
                      "averages of ternary gradients under shared scalers (TernGrad)",
                      {}},
      .make = nullptr,
      .check = check,
      .decode = decode,
      .decode_add = decode_add,
      .parameters = parameters};
  return entry;
}

}  // namespace tersewire
