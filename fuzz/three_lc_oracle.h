// Codec 3lc as spec/wire-format.md says it, one value after the other and nothing clever: what the
// fuzz targets hold the library against. It shares no code with the library.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace tersewire::fuzz {

inline constexpr std::uint8_t kOraclePartitions = 1;
inline constexpr std::uint8_t kOracleZeroRuns = 2;

// A body's item: one group, or a run of `count` groups of 121.
struct OracleItem {
  std::uint64_t count = 1;
  std::uint8_t group = 121;
};

struct OraclePayload {
  float m = 0;
  float s = 1;
  std::uint8_t layout = 0;
  std::vector<OracleItem> items;
  std::uint64_t groups = 0;
};

// The items of a body; false where the format forbids it.
inline bool oracle_body(std::span<const std::uint8_t> body, OraclePayload& payload) {
  for (const std::uint8_t byte : body) {
    OracleItem item{.count = 1, .group = byte};
    if (byte > 242) {
      if ((payload.layout & kOracleZeroRuns) == 0) return false;
      item = {.count = byte - 241u, .group = 121};
    }
    payload.items.push_back(item);
    payload.groups += item.count;
  }
  return true;
}

// Everything about a payload that does not depend on the number of elements.
inline std::optional<OraclePayload> oracle_parse(std::span<const std::uint8_t> bytes) {
  OraclePayload payload;
  if (bytes.size() < 9) return std::nullopt;
  std::memcpy(&payload.m, bytes.data(), 4);
  std::memcpy(&payload.s, bytes.data() + 4, 4);
  payload.layout = bytes[8];
  if (!std::isfinite(payload.m) || std::signbit(payload.m)) return std::nullopt;
  if (!(payload.s >= 1 && payload.s < 2) || payload.layout > 3) return std::nullopt;
  if (!oracle_body(bytes.subspan(9), payload)) return std::nullopt;
  return payload;
}

// Calls visit(element, digit - 1) for every digit outside runs, padding included.
template <typename Visit>
void oracle_visit(const OraclePayload& payload, const Visit& visit) {
  std::uint64_t g = 0;
  for (const OracleItem& item : payload.items) {
    if (item.count == 1) {
      unsigned rest = item.group;
      for (std::uint64_t k = 5; k-- > 0; rest /= 3) {
        const bool partitions = (payload.layout & kOraclePartitions) != 0;
        visit(partitions ? k * payload.groups + g : 5 * g + k, static_cast<int>(rest % 3) - 1);
      }
    }
    g += item.count;
  }
}

// Whether the payload holds exactly `elems` values.
inline bool oracle_holds(const OraclePayload& payload, std::uint64_t elems) {
  if (payload.groups != elems / 5 + (elems % 5 != 0 ? 1 : 0)) return false;
  bool padding_is_zero = true;
  oracle_visit(payload, [&](std::uint64_t e, int digit) {
    if (e >= elems && digit != 0) padding_is_zero = false;
  });
  return padding_is_zero;
}

// The digits of a payload that holds `elems` values: -1, 0 or 1 each.
inline std::vector<std::int8_t> oracle_digits(const OraclePayload& payload, std::size_t elems) {
  std::vector<std::int8_t> digits(elems, 0);
  oracle_visit(payload, [&](std::uint64_t e, int digit) {
    if (e < elems) digits[static_cast<std::size_t>(e)] = static_cast<std::int8_t>(digit);
  });
  return digits;
}

// A maximal run, written greedily.
inline void oracle_append_run(std::vector<std::uint8_t>& out, std::uint64_t run) {
  for (; run >= 14; run -= 14) out.push_back(255);
  if (run == 1) out.push_back(121);
  if (run >= 2) out.push_back(static_cast<std::uint8_t>(241 + run));
}

struct OracleEncoded {
  float m = 0;
  std::vector<std::int8_t> digits;
  std::vector<std::uint8_t> payload;
};

// What a writer makes of `t`, the finite sums of residual and input.
inline OracleEncoded oracle_encode(std::span<const float> t, float s, std::uint8_t layout) {
  OracleEncoded encoded;
  for (const float value : t) encoded.m = std::max(encoded.m, std::fabs(value));
  encoded.m = std::min(encoded.m * s, std::numeric_limits<float>::max());
  for (const float value : t) {
    const bool sent = encoded.m > 0 && 2 * std::fabs(value) >= encoded.m;
    encoded.digits.push_back(static_cast<std::int8_t>(!sent ? 0 : value > 0 ? 1 : -1));
  }
  std::vector<std::uint8_t>& out = encoded.payload;
  out.resize(9);
  std::memcpy(out.data(), &encoded.m, 4);
  std::memcpy(out.data() + 4, &s, 4);
  out[8] = layout;
  const std::size_t groups = (t.size() + 4) / 5;
  std::uint64_t run = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    int group = 0;
    for (std::size_t k = 0; k < 5; ++k) {
      const std::size_t e = (layout & kOraclePartitions) != 0 ? k * groups + g : 5 * g + k;
      group = 3 * group + 1 + (e < t.size() ? encoded.digits[e] : 0);
    }
    if (group == 121 && (layout & kOracleZeroRuns) != 0) {
      ++run;
      continue;
    }
    oracle_append_run(out, run);
    run = 0;
    out.push_back(static_cast<std::uint8_t>(group));
  }
  oracle_append_run(out, run);
  return encoded;
}

}  // namespace tersewire::fuzz
