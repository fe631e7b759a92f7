#include "nic/packet.h"

#include <algorithm>
#include <cstring>

#include "tersewire/error.h"

namespace tersewire::nic {
namespace {

constexpr std::size_t kIpBytes = 20;
constexpr std::size_t kTcpBytes = 20;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kTosAt = 1;
constexpr std::size_t kTotalAt = 2;
constexpr std::size_t kFragmentAt = 6;
constexpr std::size_t kProtocolAt = 9;
constexpr std::size_t kIpChecksumAt = 10;
constexpr std::uint8_t kTcp = 6;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kSynBit = 0x02;
// All but "do not fragment": more fragments, this one's place, and the reserved bit.
constexpr std::uint16_t kFragmentMask = 0xBFFF;
// A compressed packet's TCP or UDP checksum counts this more.
constexpr std::uint32_t kChecksumMark = 0x2C00;

// The head of a compressed payload: its size as it was, and where floats do not fill it, their
// place.
constexpr std::size_t kSizeBytes = 2;
constexpr std::size_t kPlaceBytes = 4;
constexpr std::uint16_t kPlaceBit = 0x8000;

std::uint8_t u8_at(ByteView bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}
std::uint16_t u16_at(ByteView bytes, std::size_t at) {
  return static_cast<std::uint16_t>(u8_at(bytes, at) << 8 | u8_at(bytes, at + 1));
}
std::uint32_t u32_at(ByteView bytes, std::size_t at) {
  return std::uint32_t{u16_at(bytes, at)} << 16 | u16_at(bytes, at + 2);
}
void set_u16(Bytes& bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8 & 0xFF);
  bytes[at + 1] = static_cast<std::byte>(value & 0xFF);
}
void append_little_endian(Bytes& out, std::size_t value) {
  out.push_back(static_cast<std::byte>(value & 0xFF));
  out.push_back(static_cast<std::byte>(value >> 8 & 0xFF));
}
std::uint16_t little_endian_at(ByteView bytes, std::size_t at) {
  return static_cast<std::uint16_t>(u8_at(bytes, at) | u8_at(bytes, at + 1) << 8);
}
void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

// Ones' complement sum of 16-bit words, not folded.
std::uint32_t word_sum(ByteView bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += u16_at(bytes, i);
  if (bytes.size() % 2 != 0) sum += std::uint32_t{u8_at(bytes, bytes.size() - 1)} << 8;
  return sum;
}
std::uint16_t folded(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}
// A checksum after what it covers has changed by these sums (RFC 1624).
std::uint16_t updated(std::uint16_t checksum, std::uint32_t old_sum, std::uint32_t new_sum) {
  const std::uint32_t kept = static_cast<std::uint16_t>(~checksum);
  const std::uint32_t less = static_cast<std::uint16_t>(~folded(old_sum));
  return static_cast<std::uint16_t>(~folded(kept + less + folded(new_sum)));
}

void read_transport(ByteView packet, PacketHeaders& headers) {
  const std::size_t at = headers.transport_at;
  const std::size_t bytes = headers.end - at;
  if (bytes < (headers.is_udp ? kUdpBytes : kTcpBytes)) return;
  headers.source_port = u16_at(packet, at);
  headers.destination_port = u16_at(packet, at + 2);
  if (headers.is_udp) {
    headers.checksum_at = at + 6;
    headers.payload_at = at + kUdpBytes;
    if (u16_at(packet, at + 4) == bytes) headers.kind = PacketKind::kWhole;
    return;
  }
  const std::size_t header_bytes = std::size_t{4} * (u8_at(packet, at + 12) >> 4);
  headers.checksum_at = at + 16;
  headers.payload_at = at + header_bytes;
  headers.is_syn = (u8_at(packet, at + 13) & kSynBit) != 0;
  headers.sequence = u32_at(packet, at + 4);
  if (header_bytes >= kTcpBytes && header_bytes <= bytes) headers.kind = PacketKind::kWhole;
}

// The new packet's headers, once its payload is there: lengths, code point and checksums.
void finish(Bytes& packet, ByteView old, const PacketHeaders& headers, std::uint8_t code_point,
            std::uint32_t checksum_change) {
  const std::size_t old_total = headers.end;
  const std::size_t new_total = packet.size();
  const std::uint16_t old_word = u16_at(old, 0);
  packet[kTosAt] = static_cast<std::byte>(code_point << 2 | (u8_at(old, kTosAt) & 3));
  set_u16(packet, kTotalAt, new_total);
  set_u16(packet, kIpChecksumAt,
          updated(u16_at(old, kIpChecksumAt), old_word + static_cast<std::uint32_t>(old_total),
                  u16_at(packet, 0) + static_cast<std::uint32_t>(new_total)));
  // The length is in the pseudo-header, and in UDP's own header once more.
  const std::uint32_t times = headers.is_udp ? 2 : 1;
  if (headers.is_udp) set_u16(packet, headers.transport_at + 4, new_total - headers.transport_at);
  const std::uint32_t old_sum = word_sum(old.subspan(headers.payload_at, headers.payload_bytes())) +
                                times * static_cast<std::uint32_t>(old_total);
  const std::uint32_t new_sum = word_sum(ByteView(packet).subspan(headers.payload_at)) +
                                times * static_cast<std::uint32_t>(new_total) + checksum_change;
  std::uint16_t checksum = updated(u16_at(old, headers.checksum_at), old_sum, new_sum);
  // UDP's 0 would say that there is none.
  if (headers.is_udp && checksum == 0) checksum = 0xFFFF;
  set_u16(packet, headers.checksum_at, checksum);
}

bool lacks_checksum(ByteView packet, const PacketHeaders& headers) {
  return headers.is_udp && u16_at(packet, headers.checksum_at) == 0;
}

}  // namespace

PacketHeaders read_headers(ByteView packet) {
  PacketHeaders headers;
  if (packet.size() < kIpBytes || u8_at(packet, 0) >> 4 != 4) return headers;
  const std::uint8_t protocol = u8_at(packet, kProtocolAt);
  if (protocol != kTcp && protocol != kUdp) return headers;
  headers.code_point = static_cast<std::uint8_t>(u8_at(packet, kTosAt) >> 2);
  headers.kind = PacketKind::kBroken;
  headers.is_udp = protocol == kUdp;
  headers.source = u32_at(packet, 12);
  headers.destination = u32_at(packet, 16);
  headers.transport_at = std::size_t{4} * (u8_at(packet, 0) & 0x0F);
  headers.end = u16_at(packet, kTotalAt);
  const bool fits = headers.transport_at >= kIpBytes && headers.transport_at <= headers.end &&
                    headers.end <= std::min(packet.size(), kLongestPacket);
  if (fits && (u16_at(packet, kFragmentAt) & kFragmentMask) == 0) read_transport(packet, headers);
  return headers;
}

PacketCompressor::PacketCompressor(std::string_view codec) : codec_(make_codec(codec)) {
  if (codec_->id() != CodecId::kInceptionn || codec_->keeps_residual()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a network card compresses with inceptionn without a residual; use "
                "inceptionn:bound=2^-10, or another bound");
  }
}

const Bytes* PacketCompressor::compress(ByteView packet, const PacketHeaders& headers,
                                        PayloadFloats floats) {
  if (headers.kind != PacketKind::kWhole || headers.code_point != kMarkedCodePoint) return nullptr;
  if (floats.elems == 0 || lacks_checksum(packet, headers)) return nullptr;
  const ByteView payload = packet.subspan(headers.payload_at, headers.payload_bytes());
  const std::size_t float_bytes = floats.elems * sizeof(float);
  values_.resize(floats.elems);
  std::memcpy(values_.data(), payload.data() + floats.first, float_bytes);

  packet_.assign(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(headers.payload_at));
  const bool fill = floats == PayloadFloats{0, payload.size() / sizeof(float)};
  append_little_endian(packet_, payload.size() | (fill ? 0U : kPlaceBit));
  if (!fill) {
    append_little_endian(packet_, floats.first);
    append_little_endian(packet_, floats.elems);
  }
  std::unique_ptr<Encoder>& encoder = encoders_[floats.elems];
  if (!encoder) encoder = codec_->make_encoder(floats.elems);
  if (encoder->encode(values_, 0, packet_).codec != CodecId::kInceptionn) return nullptr;
  append(packet_, payload.first(floats.first));
  append(packet_, payload.subspan(floats.first + float_bytes));
  if (packet_.size() >= headers.end) return nullptr;
  finish(packet_, packet, headers, kCompressedCodePoint, kChecksumMark);
  return &packet_;
}

std::optional<Bytes> restore(ByteView packet, const PacketHeaders& headers) {
  if (headers.kind != PacketKind::kWhole || headers.code_point != kCompressedCodePoint) return {};
  if (lacks_checksum(packet, headers)) return {};
  ByteView payload = packet.subspan(headers.payload_at, headers.payload_bytes());
  if (payload.size() < kSizeBytes + kPlaceBytes) {
    if (payload.size() < kSizeBytes || (little_endian_at(payload, 0) & kPlaceBit) != 0) return {};
  }
  const std::uint16_t head = little_endian_at(payload, 0);
  const std::size_t size = head & ~kPlaceBit;
  if (size <= payload.size() || headers.payload_at + size > kLongestPacket) return {};
  PayloadFloats floats{0, size / sizeof(float)};
  std::size_t head_bytes = kSizeBytes;
  if ((head & kPlaceBit) != 0) {
    floats = {little_endian_at(payload, kSizeBytes), little_endian_at(payload, kSizeBytes + 2)};
    head_bytes += kPlaceBytes;
  }
  const std::size_t float_bytes = floats.elems * sizeof(float);
  if (floats.elems == 0 || floats.first + float_bytes > size) return {};
  const std::size_t rest_bytes = size - float_bytes;
  payload = payload.subspan(head_bytes);
  if (payload.size() < rest_bytes) return {};
  const ByteView rest = payload.last(rest_bytes);

  Floats values(floats.elems);
  try {
    decode(CodecId::kInceptionn, payload.first(payload.size() - rest_bytes), values);
  } catch (const Error&) {
    return {};
  }
  Bytes out;
  out.reserve(headers.payload_at + size);
  append(out, packet.first(headers.payload_at));
  append(out, rest.first(floats.first));
  append(out, std::as_bytes(std::span(values)));
  append(out, rest.subspan(floats.first));
  finish(out, packet, headers, kMarkedCodePoint, static_cast<std::uint16_t>(~kChecksumMark));
  return out;
}

Bytes with_code_point(ByteView packet, std::uint8_t code_point) {
  Bytes out(packet.begin(), packet.end());
  out[kTosAt] = static_cast<std::byte>(code_point << 2 | (u8_at(packet, kTosAt) & 3));
  set_u16(out, kIpChecksumAt,
          updated(u16_at(packet, kIpChecksumAt), u16_at(packet, 0), u16_at(out, 0)));
  return out;
}

}  // namespace tersewire::nic
