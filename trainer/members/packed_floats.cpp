#include "trainer/members/packed_floats.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "tersewire/error.h"

namespace tersewire {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kFloatBytes = sizeof(float);
// So many bytes are packed together, in memory of their own.
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
// Deflate's greatest ratio (zlib.h).
constexpr std::size_t kMostRatio = 1032;
constexpr int kFastest = 1;
constexpr int kMostMemory = 9;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{}; run one version everywhere, over a network that does not damage "
                          "what it carries",
                          what));
}

// A stream of zlib's, which `end` ends.
using Stream = std::unique_ptr<z_stream, int (*)(z_stream*)>;

// zlib reads what it is given.
Bytef* bytef(ByteView bytes) {
  return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));  // NOLINT
}

// Calls move(in_block, in_planes) for the two places of each byte of a block.
template <typename Move>
void for_places(std::size_t block_bytes, const Move& move) {
  const std::size_t floats = block_bytes / kFloatBytes;
  for (std::size_t i = 0; i < floats; ++i) {
    for (std::size_t plane = 0; plane < kFloatBytes; ++plane) {
      move(i * kFloatBytes + kFloatBytes - 1 - plane, plane * floats + i);
    }
  }
  for (std::size_t i = floats * kFloatBytes; i < block_bytes; ++i) move(i, i);
}

}  // namespace

Bytes pack_floats(ByteView bytes) {
  z_stream stream{};
  // Z_RLE finds the runs, and is three times as fast as what finds more, and finds nothing here.
  if (deflateInit2(&stream, kFastest, Z_DEFLATED, MAX_WBITS, kMostMemory, Z_RLE) != Z_OK) {
    throw std::bad_alloc();
  }
  const Stream owner(&stream, deflateEnd);
  const std::uint64_t length = bytes.size();
  Bytes packed(kLengthBytes);
  std::memcpy(packed.data(), &length, kLengthBytes);
  Bytes planes(std::min(bytes.size(), kBlockBytes));
  std::size_t begin = 0;
  do {
    const ByteView block = bytes.subspan(begin, std::min(kBlockBytes, bytes.size() - begin));
    for_places(block.size(), [&](std::size_t in_block, std::size_t in_planes) {
      planes[in_planes] = block[in_block];
    });
    begin += block.size();
    stream.next_in = bytef(planes);
    stream.avail_in = static_cast<uInt>(block.size());
    do {
      const std::size_t had = packed.size();
      packed.resize(had + kBlockBytes);
      stream.next_out = bytef(ByteView(packed).subspan(had));
      stream.avail_out = static_cast<uInt>(kBlockBytes);
      deflate(&stream, begin == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
      packed.resize(packed.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (begin < bytes.size());
  return packed;
}

Bytes unpack_floats(ByteView packed) {
  std::uint64_t length = 0;
  if (packed.size() < kLengthBytes) {
    refuse(fmt::format("{} bytes are no packed state", packed.size()));
  }
  std::memcpy(&length, packed.data(), kLengthBytes);
  packed = packed.subspan(kLengthBytes);
  if (length / kMostRatio > packed.size()) {
    refuse(fmt::format("{} packed bytes cannot hold {}", packed.size(), length));
  }
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw std::bad_alloc();
  const Stream owner(&stream, inflateEnd);
  Bytes bytes;
  Bytes planes(std::clamp<std::uint64_t>(length, 1, kBlockBytes));
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    const std::size_t block = std::min<std::size_t>(length - bytes.size(), kBlockBytes);
    // Behind the last one zlib has a checksum, and nothing for a byte.
    const std::size_t room = std::max<std::size_t>(block, 1);
    stream.next_out = bytef(planes);
    stream.avail_out = static_cast<uInt>(room);
    while (state == Z_OK && stream.avail_out > 0) {
      const std::size_t given = std::min(packed.size(), kBlockBytes);
      stream.next_in = bytef(packed);
      stream.avail_in = static_cast<uInt>(given);
      state = inflate(&stream, Z_NO_FLUSH);
      packed = packed.subspan(given - stream.avail_in);
    }
    if ((state != Z_OK && state != Z_STREAM_END) || room - stream.avail_out != block) {
      refuse("a packed state is damaged, or cut off");
    }
    bytes.resize(bytes.size() + block);
    const auto made = std::span(bytes).last(block);
    for_places(block, [&](std::size_t in_block, std::size_t in_planes) {
      made[in_block] = planes[in_planes];
    });
  }
  if (bytes.size() != length || !packed.empty()) refuse("a packed state is not as long as it says");
  return bytes;
}

}  // namespace tersewire
