#include "bursts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bursts.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "burst_tables.h"

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {

// Values that are classified at once, and then moved together.
constexpr std::size_t kBlockBursts = 4;
constexpr std::size_t kBlockElems = kBlockBursts * kBurstElems;

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using U = hn::ScalableTag<std::uint32_t>;
using VecF = hn::Vec<F>;
using VecI = hn::Vec<I>;
// Halves of lanes: a mask of these has two bits a value, as tags do.
using Halves = hn::ScalableTag<std::int16_t>;
using Bytes16 = hn::Full128<std::uint8_t>;
using Lanes4 = hn::Full128<std::int32_t>;

constexpr std::int32_t kLowHalf = 0x0000FFFF;
constexpr std::int32_t kHighHalf = ~kLowHalf;
constexpr std::size_t kElemsPerTagByte = 4;

// Values between floats and bursts: the bytes of their tags, and a lane of data for each.
struct Block {
  alignas(64) std::array<std::int32_t, kBlockElems> data;
  // Highway may touch eight bytes where it writes the bits of a mask.
  alignas(64) std::array<std::uint8_t, kBlockElems / kElemsPerTagByte + 8> tags;
};

// What quantize() compares with and multiplies by.
struct Quantizer {
  // A magnitude's bit pattern above this has tag 1 or more, 2 or more, 3.
  VecI above_nothing;
  VecI above_byte;
  VecI above_two_bytes;
  // Of tag 1; those of tag 2 are the same in both modes.
  VecF scale;
  VecF inverse;
};

Quantizer make_quantizer(BurstFormat format) {
  const auto bits_below = [](float limit) { return std::bit_cast<std::int32_t>(limit) - 1; };
  const auto power = [](unsigned exponent) {
    return std::ldexp(1.0F, -static_cast<int>(exponent));
  };
  const unsigned b = format.bound_bits;
  const unsigned below_one = format.bounded ? b - 1 : 7;
  // Bounded: half a step rounds to nothing (ties to even), and 127 and a half to 128.
  const std::int32_t nothing = bits_below(power(b)) + (format.bounded ? 1 : 0);
  const float byte = format.bounded ? 127.5F * power(b - 1) : power(b - (b + 1) / 2);
  const I i;
  const F f;
  return {.above_nothing = hn::Set(i, nothing),
          .above_byte = hn::Set(i, bits_below(std::min(byte, 1.0F))),
          .above_two_bytes = hn::Set(i, bits_below(1.0F)),
          .scale = hn::Set(f, 1 / power(below_one)),
          .inverse = hn::Set(f, power(below_one))};
}

// Which values have tag 1 or more, 2 or more, 3.
struct Classes {
  hn::Mask<I> has_data;
  hn::Mask<I> is_wide;
  hn::Mask<I> is_float;
};

HWY_INLINE Classes classify(VecF t, const Quantizer& by) {
  const VecI magnitude = hn::BitCast(I(), hn::Abs(t));
  return {.has_data = hn::Gt(magnitude, by.above_nothing),
          .is_wide = hn::Gt(magnitude, by.above_byte),
          .is_float = hn::Gt(magnitude, by.above_two_bytes)};
}

HWY_INLINE void store_tags(const Classes& classes, std::uint8_t* tags) {
  const I i;
  const auto has_low = hn::Or(classes.is_float, hn::AndNot(classes.is_wide, classes.has_data));
  const VecI halves = hn::Or(hn::IfThenElseZero(has_low, hn::Set(i, kLowHalf)),
                             hn::IfThenElseZero(classes.is_wide, hn::Set(i, kHighHalf)));
  hn::StoreMaskBits(Halves(), hn::MaskFromVec(hn::BitCast(Halves(), halves)), tags);
}

// An integer as such and as a float.
struct Integer {
  VecI bits;
  VecF value;
};

template <bool kBounded>
HWY_INLINE Integer integer_of(VecF scaled) {
  const I i;
  const F f;
  if constexpr (kBounded) {
    // Adding 2^23 rounds to an integer, ties to even, and leaves it in the lowest bits.
    const VecF round = hn::Set(f, 0x1p23F);
    const VecF rounded = hn::Min(hn::Add(scaled, round), hn::Set(f, 0x1p23F + 32767.0F));
    return {.bits = hn::Sub(hn::BitCast(i, rounded), hn::BitCast(i, round)),
            .value = hn::Sub(rounded, round)};
  } else {
    const VecI cut_off = hn::ConvertTo(i, scaled);
    return {.bits = cut_off, .value = hn::ConvertTo(f, cut_off)};
  }
}

// What a lane's low bytes send: the sign above the integer, or the float.
HWY_INLINE VecI data_of(VecF t, VecI integer, const Classes& classes) {
  const I i;
  const U u;
  const auto sign = hn::And(hn::BitCast(u, t), hn::Set(u, 0x80000000));
  // Where a byte is sent, nobody sees that its neighbour has the sign as well.
  const VecI wide_sign = hn::BitCast(i, hn::ShiftRight<16>(sign));
  const VecI byte_sign = hn::BitCast(i, hn::ShiftRight<24>(sign));
  const VecI signs = hn::Or(wide_sign, hn::IfThenZeroElse(classes.is_wide, byte_sign));
  return hn::IfThenElse(classes.is_float, hn::BitCast(i, t), hn::Or(integer, signs));
}

// Classifies a block of values and rounds them or cuts them off.
template <bool kResidual, bool kBounded>
HWY_INLINE void quantize(const float* HWY_RESTRICT input, float* HWY_RESTRICT residual,
                         const Quantizer& by, Block& block) {
  const F f;
  for (std::size_t e = 0; e < kBlockElems; e += hn::Lanes(f)) {
    VecF t = hn::LoadU(f, input + e);
    if constexpr (kResidual) t = hn::Add(t, hn::LoadU(f, residual + e));
    const Classes classes = classify(t, by);
    const auto is_wide = hn::RebindMask(f, classes.is_wide);
    const VecF scale = hn::IfThenElse(is_wide, hn::Set(f, 0x1p15F), by.scale);
    const Integer integer = integer_of<kBounded>(hn::Mul(hn::Abs(t), scale));
    hn::Store(data_of(t, integer.bits, classes), I(), block.data.data() + e);
    store_tags(classes, block.tags.data() + e / kElemsPerTagByte);

    if constexpr (kResidual) {
      const VecF inverse = hn::IfThenElse(is_wide, hn::Set(f, 0x1p-15F), by.inverse);
      const VecF rounded = hn::CopySignToAbs(hn::Mul(integer.value, inverse), t);
      const VecF sent = hn::IfThenElse(hn::RebindMask(f, classes.is_float), t, rounded);
      const auto has_data = hn::RebindMask(f, classes.has_data);
      hn::StoreU(hn::Sub(t, hn::IfThenElseZero(has_data, sent)), f, residual + e);
    }
  }
}

// Four lanes' data, one after the other. Always touches 16 bytes.
HWY_INLINE std::uint8_t* gather(const std::int32_t* lanes, std::uint8_t tags, std::uint8_t* out) {
  const Bytes16 d;
  const auto data = hn::BitCast(d, hn::Load(Lanes4(), lanes));
  hn::StoreU(hn::TableLookupBytes(data, hn::Load(d, kGather[tags].data())), d, out);
  return out + kDataBytes[tags];
}

// A full burst touches what its largest form would, and no more: so nothing is written past the
// room for all of them.
HWY_INLINE std::uint8_t* write(const Block& block, std::uint8_t* out) {
  for (std::size_t k = 0; k < kBlockBursts; ++k) {
    const std::uint8_t* tags = block.tags.data() + k * kBurstTagBytes;
    const std::int32_t* lanes = block.data.data() + k * kBurstElems;
    std::memcpy(out, tags, kBurstTagBytes);
    out = gather(lanes, tags[0], out + kBurstTagBytes);
    out = gather(lanes + kElemsPerTagByte, tags[1], out);
  }
  return out;
}

template <bool kResidual, bool kBounded>
std::uint8_t* encode_blocks(const float* input, float* residual, std::size_t blocks,
                            BurstFormat format, std::uint8_t* out) {
  const Quantizer by = make_quantizer(format);
  for (std::size_t k = 0; k < blocks; ++k) {
    Block block;
    const std::size_t at = k * kBlockElems;
    quantize<kResidual, kBounded>(input + at, kResidual ? residual + at : nullptr, by, block);
    out = write(block, out);
  }
  return out;
}

// A burst, or the half of one where vectors have four lanes.
using BurstF = hn::CappedTag<float, kBurstElems>;
using BurstI = hn::RebindToSigned<BurstF>;
using BurstBytes = hn::Repartition<std::uint8_t, BurstI>;
constexpr std::size_t kBurstLanes = hn::MaxLanes(BurstF());

// The data of a vector's values in its lanes' highest bytes, and the bytes of kScatter that put
// them there: those without a source are 0x80.
struct Scattered {
  hn::Vec<BurstI> data;
  hn::Vec<BurstI> sources;
};

// Reads 16 bytes for four values, and moves on.
HWY_INLINE Scattered scatter(const std::uint8_t*& in, const std::uint8_t* tags) {
  const BurstBytes d;
  auto data = hn::LoadDup128(d, in);
  auto sources = hn::LoadDup128(d, kScatter[tags[0]].data());
  in += kDataBytes[tags[0]];
#if HWY_CAP_GE256
  const Bytes16 half;
  data = hn::Combine(d, hn::LoadU(half, in), hn::LowerHalf(half, data));
  const auto upper = hn::Load(half, kScatter[tags[1]].data());
  sources = hn::Combine(d, upper, hn::LowerHalf(half, sources));
  in += kDataBytes[tags[1]];
#endif
  const BurstI i;
  return {.data = hn::BitCast(i, hn::TableLookupBytesOr0(data, sources)),
          .sources = hn::BitCast(i, sources)};
}

// What the lanes say. Whether a byte has no source says what a value's tag is.
HWY_INLINE hn::Vec<BurstF> dequantize(const Scattered& scattered, hn::Vec<BurstF> byte_scale) {
  const BurstF f;
  const BurstI i;
  const auto lacks = [&](std::int32_t byte) HWY_ATTR {
    return hn::RebindMask(f, hn::TestBit(scattered.sources, hn::Set(i, byte)));
  };
  const auto data = hn::BitCast(f, scattered.data);
  const auto integer = hn::ConvertTo(f, hn::BitCast(i, hn::Abs(data)));
  const auto scale = hn::IfThenElse(lacks(0x800000), byte_scale, hn::Set(f, 0x1p-31F));
  // Adding 0 makes a -0 a +0.
  const auto value = hn::Add(hn::CopySignToAbs(hn::Mul(integer, scale), data), hn::Zero(f));
  return hn::IfThenElse(lacks(0x80), value, data);
}

HWY_INLINE hn::Mask<BurstF> has_nothing(const Scattered& scattered) {
  const BurstI i;
  return hn::RebindMask(BurstF(), hn::Lt(scattered.sources, hn::Zero(i)));
}

HWY_INLINE hn::Vec<BurstF> byte_scale(BurstFormat format) {
  const int below_one = format.bounded ? static_cast<int>(format.bound_bits) - 1 : 7;
  return hn::Set(BurstF(), std::ldexp(1.0F, -24 - below_one));  // data lie in the highest byte
}

// Decodes bursts as long as n values hold one more and it can be read: up to kMaxBurstBytes.
// Calls take(s, i, values, scattered) for the vectors of stream s; returns how many values of each
// are done.
template <std::size_t kStreams, class Take>
HWY_INLINE std::size_t decode_whole(const std::uint8_t** in, const std::uint8_t* end,
                                    BurstFormat format, std::size_t n, const Take& take) {
  const auto scale = byte_scale(format);
  std::array<const std::uint8_t*, kStreams> at;
  std::copy_n(in, kStreams, at.begin());
  std::size_t done = 0;
  for (; done + kBurstElems <= n &&
         static_cast<std::size_t>(end - at[kStreams - 1]) >= kMaxBurstBytes;
       done += kBurstElems) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::uint8_t* tags = at[s];
      at[s] += kBurstTagBytes;
      for (std::size_t e = 0; e < kBurstElems; e += kBurstLanes) {
        const Scattered scattered = scatter(at[s], tags + e / kElemsPerTagByte);
        take(s, done + e, dequantize(scattered, scale), scattered);
      }
    }
  }
  std::ranges::copy(at, in);
  return done;
}

// All streams together, then each as far as it goes by itself. Returns what is done of each.
template <class Take>
std::array<std::size_t, kBurstStreams> decode_streams(BurstStreams& in, const std::uint8_t* end,
                                                      BurstFormat format, std::size_t n,
                                                      const Take& take) {
  std::array<std::size_t, kBurstStreams> done;
  const std::size_t together = decode_whole<kBurstStreams>(in.data(), end, format, n, take);
  for (std::size_t s = 0; s < kBurstStreams; ++s) {
    done[s] = together + decode_whole<1>(&in[s], end, format, n - together,
                                         [&](std::size_t, std::size_t i, hn::Vec<BurstF> value,
                                             const Scattered& scattered)
                                             HWY_ATTR { take(s, together + i, value, scattered); });
  }
  return done;
}

// Bytes whose lengths are found at once, and how many bursts are worth that.
constexpr std::size_t kWindowBytes = 1024;
constexpr std::size_t kManyBursts = 64;

// lengths[i] becomes that of a burst whose tags are bytes i and i + 1. Reads a byte more than that.
HWY_INLINE void find_lengths(const std::uint8_t* in, std::uint8_t* lengths) {
  using D = hn::ScalableTag<std::uint8_t>;
  const D d;
  const auto table = hn::LoadDup128(d, kDataBytesOfTwo.data());
  const auto low = hn::Set(d, 0x0F);
  const auto data_bytes = [&](hn::Vec<D> tags) HWY_ATTR {
    const auto high = hn::And(
        hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<std::uint16_t, D>(), tags))),
        low);
    return hn::Add(hn::TableLookupBytes(table, hn::And(tags, low)),
                   hn::TableLookupBytes(table, high));
  };
  for (std::size_t i = 0; i < kWindowBytes; i += hn::Lanes(d)) {
    const auto data =
        hn::Add(data_bytes(hn::LoadU(d, in + i)), data_bytes(hn::LoadU(d, in + i + 1)));
    hn::Store(hn::Add(data, hn::Set(d, kBurstTagBytes)), d, lengths + i);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

const std::uint8_t* skip_bursts(const std::uint8_t* in, const std::uint8_t* end,
                                std::size_t count) {
  auto left = static_cast<std::size_t>(end - in);
#if HWY_TARGET != HWY_SCALAR
  // From burst to burst there is a load then, where a lookup by the tags loaded would follow it.
  alignas(64) std::array<std::uint8_t, kWindowBytes> lengths;
  while (count > kManyBursts && left > kWindowBytes) {
    find_lengths(in, lengths.data());
    std::size_t at = 0;
    for (; count > 0 && at < kWindowBytes; --count) at += lengths[at];
    if (at > left) return nullptr;
    in += at;
    left -= at;
  }
#endif
  for (; count > 0; --count) {
    if (left < kBurstTagBytes) return nullptr;
    const std::size_t bytes = kBurstTagBytes + kDataBytes[in[0]] + kDataBytes[in[1]];
    if (left < bytes) return nullptr;
    in += bytes;
    left -= bytes;
  }
  return in;
}

std::uint8_t* encode_bursts(const float* input, float* residual, std::size_t n, BurstFormat format,
                            std::uint8_t* out) {
  std::size_t at = 0;
#if HWY_TARGET != HWY_SCALAR
  const auto encode =
      residual != nullptr
          ? (format.bounded ? encode_blocks<true, true> : encode_blocks<true, false>)
          : (format.bounded ? encode_blocks<false, true> : encode_blocks<false, false>);
  out = encode(input, residual, n / kBlockElems, format, out);
  at = n / kBlockElems * kBlockElems;
#endif
  for (; at < n; at += kBurstElems) {
    out = encode_burst(input + at, residual != nullptr ? residual + at : nullptr,
                       std::min(kBurstElems, n - at), format, out);
  }
  return out;
}

void decode_bursts(BurstStreams& in, [[maybe_unused]] const std::uint8_t* end, BurstFormat format,
                   const std::array<float*, kBurstStreams>& out, std::size_t n) {
  std::array<std::size_t, kBurstStreams> done{};
#if HWY_TARGET != HWY_SCALAR
  done = decode_streams(in, end, format, n,
                        [&](std::size_t s, std::size_t i, hn::Vec<BurstF> value, const Scattered&)
                            HWY_ATTR { hn::StoreU(value, BurstF(), out[s] + i); });
#endif
  for (std::size_t s = 0; s < kBurstStreams; ++s) {
    for (std::size_t i = done[s]; i < n; i += kBurstElems) {
      in[s] = decode_burst(in[s], format, out[s] + i, kBurstElems);
    }
  }
}

void decode_add_bursts(BurstStreams& in, [[maybe_unused]] const std::uint8_t* end,
                       BurstFormat format, float weight,
                       const std::array<float*, kBurstStreams>& out, std::size_t n) {
  std::array<std::size_t, kBurstStreams> done{};
#if HWY_TARGET != HWY_SCALAR
  const BurstF f;
  const auto by = hn::Set(f, weight);
  const auto nothing = hn::Set(f, -0.0F);  // adding it changes nothing, not even a -0
  done = decode_streams(
      in, end, format, n,
      [&](std::size_t s, std::size_t i, hn::Vec<BurstF> value, const Scattered& scattered)
          HWY_ATTR {
            const auto term = hn::IfThenElse(has_nothing(scattered), nothing, hn::Mul(by, value));
            hn::StoreU(hn::Add(hn::LoadU(f, out[s] + i), term), f, out[s] + i);
          });
#endif
  for (std::size_t s = 0; s < kBurstStreams; ++s) {
    for (std::size_t i = done[s]; i < n; i += kBurstElems) {
      in[s] = decode_add_burst(in[s], format, weight, out[s] + i, kBurstElems);
    }
  }
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(encode_bursts);
HWY_EXPORT(skip_bursts);
HWY_EXPORT(decode_bursts);
HWY_EXPORT(decode_add_bursts);

std::uint8_t* encode_bursts(const float* input, float* residual, std::size_t n, BurstFormat format,
                            std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode_bursts)(input, residual, n, format, out);
}

const std::uint8_t* skip_bursts(const std::uint8_t* in, const std::uint8_t* end,
                                std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(skip_bursts)(in, end, count);
}

void decode_bursts(BurstStreams& in, const std::uint8_t* end, BurstFormat format,
                   const std::array<float*, kBurstStreams>& out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(decode_bursts)(in, end, format, out, n);
}

void decode_add_bursts(BurstStreams& in, const std::uint8_t* end, BurstFormat format, float weight,
                       const std::array<float*, kBurstStreams>& out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(decode_add_bursts)(in, end, format, weight, out, n);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
