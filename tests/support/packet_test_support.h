// What tests of network cards share, in hardware (rtl/) and in software (nic/): Ethernet frames,
// and what a card has to make of them by the library's codec.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "burst.h"
#include "codec_test_support.h"

namespace tersewire::test {

using Frame = std::vector<std::uint8_t>;

inline constexpr std::uint8_t kMarked = 0x28;
inline constexpr std::uint8_t kCompressed = 0x2C;
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kShortestFrame = 60;
inline constexpr std::size_t kLongestPacket = 9216;
inline constexpr std::size_t kPayloadHeadBytes = 2;  // before codec 7's payload

inline std::uint16_t big_endian(const Frame& frame, std::size_t at) {
  return static_cast<std::uint16_t>(frame.at(at) << 8 | frame.at(at + 1));
}
inline void set_big_endian(Frame& frame, std::size_t at, std::size_t value) {
  frame.at(at) = static_cast<std::uint8_t>(value >> 8);
  frame.at(at + 1) = static_cast<std::uint8_t>(value);
}

// --- Frames

struct Headers {
  bool udp = false;
  std::uint8_t tos = kMarked;
  std::size_t ip_option_words = 0;   // 0 to 10
  std::size_t tcp_option_words = 0;  // likewise
  bool udp_checksum = true;
};

// Where the parts of an IPv4 frame with TCP or UDP lie.
struct Layout {
  explicit Layout(const Frame& frame)
      : l4_at(kEthernetBytes + 4 * std::size_t{frame.at(14) & 0x0FU}),
        udp(frame.at(23) == 17),
        sum_at(l4_at + (udp ? 6 : 16)),
        payload_at(l4_at + (udp ? 8 : std::size_t{4} * (frame.at(l4_at + 12) >> 4))),
        end(kEthernetBytes + big_endian(frame, 16)) {}
  std::size_t l4_at;
  bool udp;
  std::size_t sum_at;
  std::size_t payload_at;
  std::size_t end;
};

inline std::uint32_t ones_sum(const Frame& bytes, std::size_t begin, std::size_t end,
                              std::uint32_t sum = 0) {
  for (std::size_t i = begin; i < end; ++i) {
    sum += std::uint32_t{bytes[i]} << ((i - begin) % 2 == 0 ? 8 : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

// Sets both checksums, computed anew; a compressed packet's as the format has it.
inline void set_checksums(Frame& frame) {
  const Layout at(frame);
  set_big_endian(frame, 24, 0);
  set_big_endian(frame, 24, ~ones_sum(frame, kEthernetBytes, at.l4_at) & 0xFFFF);
  if (at.udp && big_endian(frame, at.sum_at) == 0) return;
  set_big_endian(frame, at.sum_at, 0);
  const std::uint32_t pseudo =
      ones_sum(frame, 26, 34, frame[23] + static_cast<std::uint32_t>(at.end - at.l4_at)) +
      ((frame[15] & 0xFC) == kCompressed ? 0x2C00U : 0U);
  const std::uint32_t sum = ~ones_sum(frame, at.l4_at, at.end, pseudo) & 0xFFFF;
  set_big_endian(frame, at.sum_at, at.udp && sum == 0 ? 0xFFFF : sum);
}

// The headers with another payload, right in every field.
inline Frame with_payload(const Frame& frame, const Frame& payload, std::uint8_t tos) {
  const Layout at(frame);
  Frame out(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(at.payload_at));
  out.insert(out.end(), payload.begin(), payload.end());
  out[15] = tos;
  set_big_endian(out, 16, out.size() - kEthernetBytes);
  if (at.udp) set_big_endian(out, at.l4_at + 4, out.size() - at.l4_at);
  set_checksums(out);
  out.resize(std::max(out.size(), kShortestFrame));
  return out;
}

inline Frame make_frame(const Headers& headers, const Frame& payload, std::mt19937& random) {
  const std::size_t l4_at = 34 + 4 * headers.ip_option_words;
  const std::size_t l4_bytes = headers.udp ? 8 : 20 + 4 * headers.tcp_option_words;
  Frame frame(l4_at + l4_bytes);
  for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(random());
  set_big_endian(frame, 12, 0x0800);
  frame[14] = static_cast<std::uint8_t>(0x45 + headers.ip_option_words);
  set_big_endian(frame, 16, frame.size() - kEthernetBytes);
  set_big_endian(frame, 20, 0x4000);  // do not fragment
  frame[23] = headers.udp ? 17 : 6;
  if (headers.udp) {
    set_big_endian(frame, l4_at + 6, headers.udp_checksum ? 1 : 0);
  } else {
    frame[l4_at + 12] = static_cast<std::uint8_t>((5 + headers.tcp_option_words) << 4);
  }
  return with_payload(frame, payload, headers.tos);
}

inline Frame bytes_of_values(const Floats& values, std::size_t bytes) {
  Frame payload(bytes, 0xA5);
  std::memcpy(payload.data(), values.data(), std::min(bytes, values.size() * sizeof(float)));
  return payload;
}

inline Frame payload_of(const Frame& frame) {
  const Layout at(frame);
  return {frame.begin() + static_cast<std::ptrdiff_t>(at.payload_at),
          frame.begin() + static_cast<std::ptrdiff_t>(at.end)};
}

// A frame without its Ethernet header and trailer.
inline Bytes packet_of(const Frame& frame) {
  const std::size_t bytes = big_endian(frame, 16);
  const ByteView packet = std::as_bytes(std::span(frame)).subspan(kEthernetBytes, bytes);
  return {packet.begin(), packet.end()};
}

// --- What a card has to do, by the codec

inline std::string codec_text(kernels::BurstFormat format) {
  return std::string("inceptionn:mode=") + (format.bounded ? "bounded" : "paper") + ",bound=2^-" +
         std::to_string(format.bound_bits);
}

inline std::uint8_t layout_byte(kernels::BurstFormat format) {
  return static_cast<std::uint8_t>(format.bound_bits | (format.bounded ? 0x10 : 0));
}

// Codec 7's payload; where a value is not finite the codec sends none, and a card tag 3.
inline Bytes codec_payload(const Floats& values, kernels::BurstFormat format) {
  Bytes out;
  if (std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
    make_codec(codec_text(format))->make_encoder(values.size())->encode(values, 0, out);
    return out;
  }
  out.push_back(static_cast<std::byte>(layout_byte(format)));
  for (std::size_t i = 0; i < values.size(); i += kernels::kBurstElems) {
    const std::size_t tags_at = out.size();
    out.resize(tags_at + 2);
    unsigned tags = 0;
    for (std::size_t e = i; e < std::min(i + kernels::kBurstElems, values.size()); ++e) {
      const kernels::BurstItem item =
          std::isfinite(values[e]) ? kernels::burst_item(values[e], format)
                                   : kernels::BurstItem{kernels::BurstTag::kFloat,
                                                        std::bit_cast<std::uint32_t>(values[e])};
      tags |= static_cast<unsigned>(item.tag) << 2 * (e - i);
      for (std::size_t b = 0; b < kernels::data_bytes(item.tag); ++b) {
        out.push_back(static_cast<std::byte>(item.data >> 8 * b));
      }
    }
    out[tags_at] = static_cast<std::byte>(tags);
    out[tags_at + 1] = static_cast<std::byte>(tags >> 8);
  }
  return out;
}

inline Frame compressed_payload(const Frame& payload, kernels::BurstFormat format) {
  Floats values(payload.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), payload.data(), values.size() * sizeof(float));
  Frame out{static_cast<std::uint8_t>(payload.size()),
            static_cast<std::uint8_t>(payload.size() >> 8)};
  for (const std::byte b : codec_payload(values, format)) {
    out.push_back(std::to_integer<std::uint8_t>(b));
  }
  out.insert(out.end(), payload.end() - static_cast<std::ptrdiff_t>(payload.size() % 4),
             payload.end());
  return out;
}

// The payload as it was but for the error, or nothing where the bytes are not what an engine makes.
inline std::optional<Frame> restored_payload(const Frame& bytes) {
  if (bytes.size() < kPayloadHeadBytes + 1) return {};
  const std::size_t size = bytes[0] | std::size_t{bytes[1]} << 8;
  const std::size_t rest = size % 4;
  if (size <= bytes.size() || size > kLongestPacket - 42) return {};
  if (bytes.size() < kPayloadHeadBytes + 1 + rest) return {};
  const ByteView codec_bytes =
      std::as_bytes(std::span(bytes))
          .subspan(kPayloadHeadBytes, bytes.size() - kPayloadHeadBytes - rest);
  Floats values(size / 4);
  try {
    decode(CodecId::kInceptionn, codec_bytes, values);
  } catch (const Error&) {
    return {};
  }
  Frame out = bytes_of_values(values, size);
  std::copy(bytes.end() - static_cast<std::ptrdiff_t>(rest), bytes.end(),
            out.end() - static_cast<std::ptrdiff_t>(rest));
  return out;
}

// UDP can do without one; such packets are not compressed.
inline bool lacks_checksum(const Frame& frame) {
  const Layout at(frame);
  return at.udp && big_endian(frame, at.sum_at) == 0;
}

// What leaves of a whole, marked packet.
inline Frame compressed_frame(const Frame& frame, kernels::BurstFormat format) {
  const Frame payload = payload_of(frame);
  const Frame made = compressed_payload(payload, format);
  if (payload.empty() || made.size() >= payload.size() || lacks_checksum(frame)) return frame;
  return with_payload(frame, made, static_cast<std::uint8_t>(kCompressed | (frame[15] & 3)));
}
inline std::optional<Frame> restored_frame(const Frame& frame) {
  if (lacks_checksum(frame)) return {};
  const std::optional<Frame> payload = restored_payload(payload_of(frame));
  if (!payload) return {};
  return with_payload(frame, *payload, static_cast<std::uint8_t>(kMarked | (frame[15] & 3)));
}

}  // namespace tersewire::test
