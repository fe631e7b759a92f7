// Packets of a network card (spec/wire-format.md): what becomes of one IPv4 packet as it leaves,
// and as it arrives. Nothing here has state or knows sockets; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "tersewire/bytes.h"
#include "tersewire/codec.h"

namespace tersewire::nic {

// The upper six bits of the type of service; the lower two are routers' and stay.
inline constexpr std::uint8_t kMarkedCodePoint = 0x0A;      // to be compressed: ToS 0x28
inline constexpr std::uint8_t kCompressedCodePoint = 0x0B;  // is compressed: ToS 0x2C
// Longer ones leave as they came: the longest that a card in hardware has room for, less its
// Ethernet header.
inline constexpr std::size_t kLongestPacket = 9216 - 14;

// What a packet is to a card.
enum class PacketKind {
  kForeign,  // not IPv4 with TCP or UDP
  kBroken,   // a fragment, too long, or with lengths that contradict each other
  kWhole
};

// Where the parts of a whole packet lie, from its first byte on, and what its headers say. Of other
// kinds the code point alone counts, where there is an IPv4 header.
struct PacketHeaders {
  PacketKind kind = PacketKind::kForeign;
  std::uint8_t code_point = 0;
  bool is_udp = false;
  bool is_syn = false;
  std::size_t transport_at = 0;
  std::size_t checksum_at = 0;  // of TCP or UDP
  std::size_t payload_at = 0;
  std::size_t end = 0;
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint32_t sequence = 0;  // of TCP: the payload's first byte

  [[nodiscard]] std::size_t payload_bytes() const { return end - payload_at; }
};

// Reads the headers of any bytes.
PacketHeaders read_headers(ByteView packet);

// The part of a payload that is floats: 4 * elems bytes from byte `first` on.
struct PayloadFloats {
  std::size_t first = 0;
  std::size_t elems = 0;

  bool operator==(const PayloadFloats&) const = default;
};

// Compresses packets with one setting of codec inceptionn. One thread.
class PacketCompressor {
 public:
  // Throws kInvalidArgument for a text that names no codec, another one, or one with a residual:
  // packets are lost and sent again, so that each stands for itself.
  explicit PacketCompressor(std::string_view codec);

  // The packet with `floats` of its payload compressed; nothing where it has to leave as it came:
  // it is not whole, not marked, UDP without a checksum, would not become shorter, or has a value
  // that is not finite. Requires floats within the payload. The result lasts until the next call.
  const Bytes* compress(ByteView packet, const PacketHeaders& headers, PayloadFloats floats);

 private:
  std::shared_ptr<const Codec> codec_;
  std::map<std::size_t, std::unique_ptr<Encoder>> encoders_;  // by values; at most 2,301
  Bytes packet_;
  Floats values_;
};

// The packet that compress() got, except for what the codec lost, from one with the compressed code
// point and a payload; nothing where the bytes are not what a card sends.
std::optional<Bytes> restore(ByteView packet, const PacketHeaders& headers);

// The packet with another code point and the IPv4 checksum that goes with it. Requires an IPv4
// header.
Bytes with_code_point(ByteView packet, std::uint8_t code_point);

}  // namespace tersewire::nic
