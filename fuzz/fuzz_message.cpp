// Arbitrary bytes as a message, and whatever its frames hold as payloads.
//
// Input: one byte of choices (bit 0: repair the checksum, which no fuzzer would guess), two bytes
// of element count for frames without a description, one byte of workers, the message.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/codec.h"
#include "tersewire/message.h"

namespace tersewire::fuzz {
namespace {

constexpr std::uint8_t kRepairBit = 1;
constexpr std::size_t kCountedBytes = 20;     // what the checksum covers of the header
constexpr std::size_t kMaxDecoded = 1 << 16;  // elements; a frame may claim 2^40

void seal(std::vector<std::byte>& message) {
  if (message.size() < kMessageOverheadBytes) return;
  std::vector<std::byte> covered(message.begin(), message.begin() + kCountedBytes);
  covered.insert(covered.end(), message.begin() + kMessageOverheadBytes, message.end());
  const std::uint64_t sum = XXH64(covered.data(), covered.size(), 0);
  std::memcpy(message.data() + kCountedBytes, &sum, sizeof(sum));
}

void check_bitmap(ByteView bitmap, std::size_t workers) {
  if (!succeeds([&] { check_contributors(bitmap, workers); })) return;
  std::size_t named = 0;
  for (const std::byte byte : bitmap) {
    named += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(byte)));
  }
  require(bitmap.size() == (workers + 7) / 8, "an accepted bitmap has a bit for each worker");
  require(named < workers, "an accepted bitmap leaves a worker out");
  require(workers % 8 == 0 || std::to_integer<unsigned>(bitmap.back()) >> (workers % 8) == 0,
          "an accepted bitmap names no worker that there is not");
}

void check_values(const Frame& frame, std::size_t elems) {
  const bool sound = succeeds([&] { check_payload(frame.codec, frame.payload, elems); });
  const bool told = succeeds([&] { payload_parameters(frame.codec, frame.payload); });
  require(told || !sound, "a sound payload's parameters can be read");
  if (elems > kMaxDecoded) return;

  constexpr float kMark = -123.25F;
  const std::vector<float> before(elems, kMark);
  std::vector<float> values = before;
  const bool decoded = succeeds([&] { decode(frame.codec, frame.payload, values); });
  require(decoded == sound, "decode accepts what check_payload accepts");
  std::vector<float> sums = before;
  const bool added = succeeds([&] { decode_add(frame.codec, frame.payload, 0.5F, sums); });
  require(added == sound, "decode_add accepts what check_payload accepts");
  if (!sound) {
    require(same_bits(values, before), "a failed decode leaves its output unchanged");
    require(same_bits(sums, before), "a failed decode_add leaves its output unchanged");
    return;
  }
  std::vector<float> from_zero(elems, 0.0F);
  decode_add(frame.codec, frame.payload, 1.0F, from_zero);
  require(same_values(values, from_zero), "decode equals decode_add onto zeros");
}

std::size_t varint_bytes(std::uint32_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// What a writer makes of `bytes`: the same of this version, with the unused bits of the frames'
// flags at 0.
std::vector<std::byte> without_unused_bits(std::vector<std::byte> bytes, const Message& message,
                                           const std::byte* first) {
  constexpr std::size_t kVersionOffset = 2;
  bytes[kVersionOffset] = std::byte{2};
  std::size_t at = kMessageOverheadBytes;
  for (const Frame& frame : message.frames) {
    bytes[at + varint_bytes(frame.tensor) + 1] &= std::byte{0x3F};
    at = static_cast<std::size_t>(frame.payload.data() - first) + frame.payload.size();
  }
  require(at == bytes.size(), "the last frame ends the message");
  seal(bytes);
  return bytes;
}

void check_repacked(const std::vector<std::byte>& bytes, const Message& message) {
  MessageWriter writer(message.header);
  for (const Frame& frame : message.frames) writer.add(frame);
  const ByteView packed = writer.finish();
  const auto expected = without_unused_bits(bytes, message, bytes.data());
  require(packed.size() == expected.size() &&
              std::memcmp(packed.data(), expected.data(), packed.size()) == 0,
          "packing what was parsed gives the same bytes");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const auto choices = input.take<std::uint8_t>();
  const std::size_t undescribed_elems = input.take<std::uint16_t>();
  const std::size_t workers = input.take<std::uint8_t>();
  std::vector<std::byte> bytes = input.copy_of_rest();
  if ((choices & kRepairBit) != 0) seal(bytes);

  std::optional<Message> message;
  if (!succeeds([&] { message = parse_message(bytes); })) return 0;
  for (const Frame& frame : message->frames) {
    if (frame.codec == CodecId::kContributors) {
      check_bitmap(frame.payload, workers);
    } else {
      check_values(frame, frame.elems().value_or(undescribed_elems));
    }
  }
  check_repacked(bytes, *message);
  return 0;
}
