#include "burst.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tersewire::kernels {
namespace {

constexpr unsigned kExponentBias = 127;
constexpr unsigned kByteBits = 7;       // of magnitude; the sign is above
constexpr unsigned kTwoBytesBits = 15;  // likewise

float power_of_two(int exponent) { return std::ldexp(1.0F, exponent); }

BurstItem byte_item(bool negative, std::uint32_t v) {
  return {BurstTag::kByte, v | std::uint32_t{negative} << kByteBits};
}

BurstItem two_byte_item(bool negative, std::uint32_t v) {
  return {BurstTag::kTwoBytes, v | std::uint32_t{negative} << kTwoBytesBits};
}

// Algorithm 2: magnitudes are cut off, and the exponent alone chooses the class.
BurstItem paper_item(float magnitude, bool negative, unsigned bound_bits) {
  const unsigned exponent = std::bit_cast<std::uint32_t>(magnitude) >> 23;
  const unsigned lowest = kExponentBias - bound_bits;
  const auto cut_off = [&](int bits) {
    return static_cast<std::uint32_t>(magnitude * power_of_two(bits));
  };
  if (exponent < lowest) return {};
  if (exponent >= lowest + (bound_bits + 1) / 2) {
    return two_byte_item(negative, cut_off(kTwoBytesBits));
  }
  return byte_item(negative, cut_off(kByteBits));
}

// Ours: multiples of twice the bound, and of 2^-15 where seven bits do not hold them.
BurstItem bounded_item(float magnitude, bool negative, unsigned bound_bits) {
  const auto rounded = [&](int bits) {
    return static_cast<std::uint32_t>(std::nearbyint(magnitude * power_of_two(bits)));
  };
  const std::uint32_t q = rounded(static_cast<int>(bound_bits) - 1);
  if (q == 0) return {};
  if (q < 1U << kByteBits) return byte_item(negative, q);
  constexpr std::uint32_t kLargest = (1U << kTwoBytesBits) - 1;
  return two_byte_item(negative, std::min(rounded(kTwoBytesBits), kLargest));
}

// Calls take(item) for the first n items of a burst; returns the end of their data.
template <typename Take>
const std::uint8_t* read_burst(const std::uint8_t* in, std::size_t n, const Take& take) {
  std::uint16_t tags;
  std::memcpy(&tags, in, sizeof(tags));
  in += sizeof(tags);
  for (std::size_t i = 0; i < n; ++i) {
    BurstItem item{static_cast<BurstTag>(tags >> 2 * i & 3), 0};
    std::memcpy(&item.data, in, data_bytes(item.tag));
    in += data_bytes(item.tag);
    take(i, item);
  }
  return in;
}

}  // namespace

BurstItem burst_item(float value, BurstFormat format) {
  const float magnitude = std::fabs(value);
  const bool negative = std::signbit(value);
  if (magnitude >= 1) return {BurstTag::kFloat, std::bit_cast<std::uint32_t>(value)};
  return format.bounded ? bounded_item(magnitude, negative, format.bound_bits)
                        : paper_item(magnitude, negative, format.bound_bits);
}

float burst_value(BurstItem item, BurstFormat format) {
  if (item.tag == BurstTag::kNothing) return 0;
  if (item.tag == BurstTag::kFloat) return std::bit_cast<float>(item.data);
  const bool is_byte = item.tag == BurstTag::kByte;
  const unsigned bits = is_byte ? kByteBits : kTwoBytesBits;
  const unsigned below_one = is_byte && format.bounded ? format.bound_bits - 1 : bits;
  const std::uint32_t v = item.data & ((1U << bits) - 1);
  const float magnitude = static_cast<float>(v) * power_of_two(-static_cast<int>(below_one));
  // Where the first 1 is sought and there is none, the value is +0, whatever its sign bit.
  return v != 0 && (item.data >> bits & 1) != 0 ? -magnitude : magnitude;
}

std::uint8_t* encode_burst(const float* input, float* residual, std::size_t n, BurstFormat format,
                           std::uint8_t* out) {
  unsigned tags = 0;
  std::uint8_t* data = out + kBurstTagBytes;
  for (std::size_t i = 0; i < n; ++i) {
    const float t = residual != nullptr ? input[i] + residual[i] : input[i];
    const BurstItem item = burst_item(t, format);
    if (residual != nullptr) residual[i] = t - burst_value(item, format);
    tags |= static_cast<unsigned>(item.tag) << 2 * i;
    std::memcpy(data, &item.data, data_bytes(item.tag));
    data += data_bytes(item.tag);
  }
  std::memcpy(out, &tags, kBurstTagBytes);
  return data;
}

const std::uint8_t* decode_burst(const std::uint8_t* in, BurstFormat format, float* out,
                                 std::size_t n) {
  return read_burst(in, n,
                    [&](std::size_t i, BurstItem item) { out[i] = burst_value(item, format); });
}

const std::uint8_t* decode_add_burst(const std::uint8_t* in, BurstFormat format, float weight,
                                     float* out, std::size_t n) {
  return read_burst(in, n, [&](std::size_t i, BurstItem item) {
    if (item.tag != BurstTag::kNothing) out[i] += weight * burst_value(item, format);
  });
}

}  // namespace tersewire::kernels
