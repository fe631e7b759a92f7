#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "bit_fields.h"
#include "byte_io.h"
#include "errors.h"
#include "huffman.h"
#include "oland_raj_payload.h"
#include "residual_encoder.h"

namespace tersewire {
namespace {

using kernels::kStreams;

constexpr std::uint8_t kBodyMask = 3;
constexpr std::uint8_t kF64Bit = 4;

// Values that are decoded at once: a multiple of 8, so that fixed indices begin at a byte, and few
// enough for the first cache.
constexpr std::size_t kBlockElems = 2048;
// A part shorter than this costs more to hand to a thread than it saves.
constexpr std::size_t kMinPartElems = std::size_t{1} << 16;
constexpr std::uint64_t kMaxStreamBytes = std::uint64_t{1} << 40;

using Streams = std::array<kernels::StreamReader, kStreams>;

// A payload that has been checked, cut into parts that can be decoded side by side.
struct Payload {
  OlandRajHead head;
  Partition parts;
  ByteView fixed{};
  std::optional<HuffmanTables> tables{};
  std::vector<Streams> streams{};  // where each part begins
};

void check_fixed(const Payload& payload, std::size_t elems) {
  const unsigned bits = payload.head.bits;
  if (payload.fixed.size() != fixed_body_bytes(elems, bits)) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has {} bytes of indices where {} are expected",
         payload.fixed.size(), fixed_body_bytes(elems, bits));
  }
  const std::size_t last_bits = elems % 8 * bits % 8;
  if (last_bits != 0 && std::to_integer<unsigned>(payload.fixed.back()) >> last_bits != 0) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has bits after its last index");
  }
}

Streams take_streams(ByteReader& reader, std::size_t elems) {
  std::array<std::uint64_t, kStreams> sizes{};
  for (std::uint64_t& size : sizes) size = reader.varint(kMaxStreamBytes, "length of a stream");
  Streams streams{};
  for (std::size_t k = 0; k < kStreams; ++k) {
    // A code has at least one bit.
    const std::size_t codes = (elems + kStreams - 1 - k) / kStreams;
    if (sizes[k] < (codes + 7) / 8 || sizes[k] > reader.left()) {
      fail(ErrorCode::kDataLoss,
           "stream {} of an oland-raj payload has {} bytes, for {} codes and with {} bytes left", k,
           sizes[k], codes, reader.left());
    }
    const ByteView bytes = reader.take(static_cast<std::size_t>(sizes[k]), "stream");
    streams[k] = {.bytes = as_u8(bytes), .size = bytes.size(), .position = 0};
  }
  return streams;
}

void check_end(const Streams& streams) {
  for (std::size_t k = 0; k < kStreams; ++k) {
    const kernels::StreamReader& stream = streams[k];
    if ((stream.position + 7) / 8 != stream.size) {
      fail(ErrorCode::kDataLoss, "stream {} of an oland-raj payload has {} bytes for {} bits", k,
           stream.size, stream.position);
    }
    if (stream.position % 8 != 0 && stream.bytes[stream.size - 1] >> stream.position % 8 != 0) {
      fail(ErrorCode::kDataLoss, "stream {} of an oland-raj payload has bits after its last code",
           k);
    }
  }
}

// Once a code is complete, all bits mean something: what can be wrong with a stream is only where
// it ends. So it is walked through first, several codes at a step and nothing stored, rather than
// decoded into memory that would cost half as much as the output.
void check_streams(Payload& payload, Streams streams, std::size_t elems) {
  const Partition& parts = payload.parts;
  for (std::size_t i = 0; i < parts.count(); ++i) {
    payload.streams.push_back(streams);
    if (!kernels::skip_codes(payload.tables->view(), streams, parts.end(i) - parts.begin(i))) {
      fail(ErrorCode::kDataLoss, "an oland-raj payload ends within its codes for {} values", elems);
    }
  }
  check_end(streams);
}

Payload read_payload(ByteView bytes, std::size_t elems, const ThreadPool* pool) {
  ByteReader reader(bytes);
  Payload payload{.head = read_oland_raj_head(reader),
                  .parts = Partition::of(elems, kMinPartElems, pool)};
  if (elems == 0 && (payload.head.body != OlandRajBody::kConstant || payload.head.min != 0)) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload for no values must be the constant 0");
  }
  if (payload.head.body == OlandRajBody::kFixed) {
    payload.fixed = reader.take(reader.left(), "indices");
    check_fixed(payload, elems);
  }
  if (payload.head.body == OlandRajBody::kHuffman) {
    const auto lengths = read_lengths(reader, std::size_t{1} << payload.head.bits);
    const Streams streams = take_streams(reader, elems);
    if (reader.left() == 0) {
      payload.tables.emplace(lengths, elems);
      check_streams(payload, streams, elems);
    }
  }
  if (reader.left() > 0) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has {} bytes too many", reader.left());
  }
  return payload;
}

// Calls use(begin, n, indices) for the blocks of a part.
template <typename Use>
void read_part(const Payload& payload, std::size_t part, const Use& use) {
  const Partition& parts = payload.parts;
  Streams streams{};
  if (payload.tables) streams = payload.streams[part];
  std::array<std::uint16_t, kBlockElems> indices;
  for (std::size_t i = parts.begin(part); i < parts.end(part); i += kBlockElems) {
    const std::size_t n = std::min(kBlockElems, parts.end(part) - i);
    if (payload.tables) {
      kernels::read_codes(payload.tables->view(), streams, n, indices.data());
    } else {
      const unsigned bits = payload.head.bits;
      kernels::read_fields(as_u8(payload.fixed) + i / 8 * bits, n, bits, indices.data());
    }
    use(i, n, indices.data());
  }
}

template <typename Use>
void read_parts(const Payload& payload, ThreadPool* pool, const Use& use) {
  run_parts(pool, payload.parts.count(), [&](std::size_t part) { read_part(payload, part, use); });
}

float to_float(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

template <typename T>
void append_extreme(Bytes& out, const OlandRajHead& head) {
  append_value(out, static_cast<T>(head.min));
  if (head.body != OlandRajBody::kConstant) append_value(out, static_cast<T>(head.max));
}

double read_extreme(ByteReader& reader, bool f64, std::string_view what) {
  const double value = f64 ? reader.read<double>(what) : reader.read<float>(what);
  if (!std::isfinite(value)) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has the {} {}, which is not finite", what,
         value);
  }
  return value;
}

}  // namespace

void append_oland_raj_head(Bytes& out, const OlandRajHead& head) {
  append_value(
      out, static_cast<std::uint8_t>(static_cast<unsigned>(head.body) | (head.f64 ? kF64Bit : 0U)));
  head.f64 ? append_extreme<double>(out, head) : append_extreme<float>(out, head);
  if (head.body != OlandRajBody::kConstant) {
    append_value(out, static_cast<std::uint8_t>(head.bits));
  }
}

OlandRajHead read_oland_raj_head(ByteReader& reader) {
  const auto layout = reader.read<std::uint8_t>("oland-raj layout");
  if (layout > (kF64Bit | kBodyMask) || (layout & kBodyMask) == kBodyMask) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has the unknown layout byte {}", layout);
  }
  OlandRajHead head;
  head.body = static_cast<OlandRajBody>(layout & kBodyMask);
  head.f64 = (layout & kF64Bit) != 0;
  head.min = read_extreme(reader, head.f64, "minimum");
  if (head.body == OlandRajBody::kConstant) return head;
  head.max = read_extreme(reader, head.f64, "maximum");
  if (!(head.max > head.min) || std::isinf(head.max - head.min)) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload runs from {} to {}, which is not a range",
         head.min, head.max);
  }
  head.bits = reader.read<std::uint8_t>("oland-raj bits");
  if (head.bits < 1 || head.bits > kMaxIndexBits) {
    fail(ErrorCode::kDataLoss, "an oland-raj payload has indices of {} bits, not of 1 to {}",
         head.bits, kMaxIndexBits);
  }
  return head;
}

void check_oland_raj(ByteView bytes, std::size_t elems) { read_payload(bytes, elems, nullptr); }

void decode_oland_raj(ByteView bytes, std::span<float> out, ThreadPool* pool) {
  const Payload payload = read_payload(bytes, out.size(), pool);
  if (payload.head.body == OlandRajBody::kConstant) {
    std::ranges::fill(out, to_float(payload.head.min));
    return;
  }
  const kernels::Grid grid = payload.head.grid();
  read_parts(payload, pool, [&](std::size_t begin, std::size_t n, const std::uint16_t* indices) {
    kernels::read_grid(grid, indices, n, out.data() + begin);
  });
}

void decode_f64_oland_raj(ByteView bytes, std::span<double> out, ThreadPool* pool) {
  const Payload payload = read_payload(bytes, out.size(), pool);
  if (payload.head.body == OlandRajBody::kConstant) {
    std::ranges::fill(out, payload.head.min);
    return;
  }
  const kernels::Grid grid = payload.head.grid();
  read_parts(payload, pool, [&](std::size_t begin, std::size_t n, const std::uint16_t* indices) {
    if (payload.head.f64) return kernels::read_grid(grid, indices, n, out.data() + begin);
    std::array<float, kBlockElems> values;
    kernels::read_grid(grid, indices, n, values.data());
    std::copy_n(values.data(), n, out.data() + begin);
  });
}

void decode_add_oland_raj(ByteView bytes, float weight, std::span<float> out, ThreadPool* pool) {
  const Payload payload = read_payload(bytes, out.size(), pool);
  const kernels::Grid grid = payload.head.grid();
  if (payload.head.body == OlandRajBody::kConstant) {
    const float product = weight * to_float(payload.head.min);
    for (float& value : out) value += product;
    return;
  }
  read_parts(payload, pool, [&](std::size_t begin, std::size_t n, const std::uint16_t* indices) {
    kernels::add_grid(grid, indices, n, weight, out.data() + begin);
  });
}

}  // namespace tersewire
