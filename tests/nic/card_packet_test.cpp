// Packets of a network card in software: the same bytes as the engine in hardware has to make
// (packet_test_support.h is the judge of both), and what becomes of packets that lie.
#include <gtest/gtest.h>

#include "nic/packet.h"
#include "packet_test_support.h"

namespace tersewire::nic {
namespace {

using namespace tersewire::test;
using kernels::BurstFormat;

constexpr BurstFormat kDefault{10, true};

Frame gradient_payload(std::size_t bytes, unsigned seed, float scale = 1e-2F) {
  return bytes_of_values(heavy_tailed(bytes / 4 + 1, seed, scale), bytes);
}

PayloadFloats all_of(const PacketHeaders& headers) {
  return {0, headers.payload_bytes() / sizeof(float)};
}

// Compressed from the first byte on; nothing where it has to stay.
std::optional<Bytes> compressed(const Bytes& packet, BurstFormat format = kDefault) {
  PacketCompressor compressor(codec_text(format));
  const PacketHeaders headers = read_headers(packet);
  const Bytes* made = compressor.compress(packet, headers, all_of(headers));
  return made == nullptr ? std::nullopt : std::optional(*made);
}

std::optional<Bytes> restored(const Bytes& packet) { return restore(packet, read_headers(packet)); }

TEST(CardPacket, EqualsTheEngineInHardware) {
  std::mt19937 random(1);
  std::size_t changed = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    const Headers headers{.udp = random() % 2 == 0,
                          .tos = static_cast<std::uint8_t>(kMarked | random() % 4),
                          .ip_option_words = random() % 11,
                          .tcp_option_words = random() % 11,
                          .udp_checksum = random() % 8 != 0};
    const BurstFormat format{1 + round % 15, round % 2 == 0};
    const float scale = std::ldexp(1.0F, -static_cast<int>(random() % 16));
    const Frame frame =
        make_frame(headers, gradient_payload(1 + random() % 1460, round, scale), random);
    const Frame expected = compressed_frame(frame, format);
    const std::optional<Bytes> made = compressed(packet_of(frame), format);
    ASSERT_EQ(made.has_value(), expected != frame) << "round " << round;
    if (!made) continue;
    ++changed;
    ASSERT_EQ(*made, packet_of(expected)) << "round " << round;
    ASSERT_EQ(restored(*made), packet_of(restored_frame(expected).value())) << "round " << round;
  }
  EXPECT_GT(changed, 2000U);
}

TEST(CardPacket, TheLongestPacketAndOneLonger) {
  std::mt19937 random(1);
  const Frame longest = make_frame({}, gradient_payload(test::kLongestPacket - 54, 1), random);
  EXPECT_TRUE(compressed(packet_of(longest)));
  EXPECT_FALSE(compressed(
      packet_of(make_frame({}, gradient_payload(test::kLongestPacket - 53, 1), random))));
}

TEST(CardPacket, FloatsAnywhereInThePayload) {
  std::mt19937 random(2);
  PacketCompressor compressor("inceptionn:bound=2^-10");
  for (unsigned round = 0; round < 2000; ++round) {
    const std::size_t elems = 20 + random() % 300;
    const std::size_t first = random() % 50;
    const Floats values = heavy_tailed(elems, round, 1e-2F);
    Frame payload(first + 4 * elems + random() % 50);
    for (std::uint8_t& byte : payload) byte = static_cast<std::uint8_t>(random());
    std::memcpy(payload.data() + first, values.data(), 4 * elems);
    const Bytes packet = packet_of(make_frame({.tcp_option_words = 3}, payload, random));
    const Bytes* made = compressor.compress(packet, read_headers(packet), {first, elems});
    ASSERT_NE(made, nullptr);
    const std::optional<Bytes> back = restored(*made);
    ASSERT_TRUE(back);
    // Headers and the other bytes exactly, with checksums that are right; values within the bound.
    const std::size_t at = read_headers(packet).payload_at;
    ASSERT_EQ(back->size(), packet.size());
    Frame expected = payload;
    for (std::size_t i = 0; i < elems; ++i) {
      float value = 0;
      std::memcpy(&value, back->data() + at + first + 4 * i, 4);
      ASSERT_NEAR(value, values[i], 0x1p-10F);
      std::memcpy(expected.data() + first + 4 * i, &value, 4);
    }
    Frame frame(kEthernetBytes);
    for (const std::byte b : packet) frame.push_back(std::to_integer<std::uint8_t>(b));
    ASSERT_EQ(*back, packet_of(with_payload(frame, expected, kMarked)));
  }
}

// What the paper's rule, floats from the first byte on, does to a message of Open MPI: its header's
// small numbers are floats below every bound.
TEST(CardPacket, BlindCompressionLosesAMessageHeader) {
  std::mt19937 random(3);
  Frame payload = gradient_payload(1448, 1);
  const std::vector<std::uint32_t> header{0x00000041, 7, 65536, 0x00000003};
  std::memcpy(payload.data(), header.data(), 16);
  const Bytes packet = packet_of(make_frame({}, payload, random));
  const Bytes blind = restored(compressed(packet, {10, false}).value()).value();
  const std::size_t at = read_headers(packet).payload_at;
  std::vector<std::uint32_t> got(4);
  std::memcpy(got.data(), blind.data() + at, 16);
  EXPECT_EQ(got, (std::vector<std::uint32_t>{0, 0, 0, 0}));

  PacketCompressor compressor("inceptionn");
  const Bytes* made = compressor.compress(packet, read_headers(packet), {16, 358});
  std::memcpy(got.data(), restored(*made).value().data() + at, 16);
  EXPECT_EQ(got, header);
}

// A host without a card must take a compressed packet for damaged.
TEST(CardPacket, TheChecksumOfACompressedPacketIsWrong) {
  std::mt19937 random(4);
  for (const bool udp : {false, true}) {
    for (unsigned round = 0; round < 500; ++round) {
      const Bytes made =
          compressed(packet_of(make_frame({.udp = udp}, gradient_payload(400, round), random)))
              .value();
      Frame frame(kEthernetBytes);
      for (const std::byte b : made) frame.push_back(std::to_integer<std::uint8_t>(b));
      const auto length = static_cast<std::uint32_t>(frame.size() - Layout(frame).l4_at);
      const std::uint32_t pseudo = ones_sum(frame, 26, 34, frame[23] + length);
      EXPECT_NE(ones_sum(frame, Layout(frame).l4_at, frame.size(), pseudo), 0xFFFFU);
      EXPECT_EQ(ones_sum(frame, Layout(frame).l4_at, frame.size(), pseudo + 0x2C00), 0xFFFFU);
    }
  }
}

// --- What lies

TEST(CardPacket, ForeignAndBrokenPackets) {
  std::mt19937 random(5);
  const Bytes tcp = packet_of(make_frame({}, gradient_payload(500, 1), random));
  const Bytes udp = packet_of(make_frame({.udp = true}, gradient_payload(500, 1), random));
  const auto kind = [](Bytes packet, std::size_t at, int value) {
    packet[at] = static_cast<std::byte>(value);
    return read_headers(packet).kind;
  };
  EXPECT_EQ(kind(tcp, 0, 0x45), PacketKind::kWhole);
  EXPECT_EQ(kind(tcp, 0, 0x65), PacketKind::kForeign);  // IPv6
  EXPECT_EQ(kind(tcp, 9, 1), PacketKind::kForeign);     // ICMP
  EXPECT_EQ(kind(tcp, 0, 0x44), PacketKind::kBroken);   // an IPv4 header of 16 bytes
  EXPECT_EQ(kind(tcp, 32, 0x40), PacketKind::kBroken);  // a TCP header of 16
  EXPECT_EQ(kind(tcp, 32, 0xF0), PacketKind::kWhole);
  EXPECT_EQ(kind(tcp, 6, 0x20), PacketKind::kBroken);  // fragments
  EXPECT_EQ(kind(tcp, 7, 0x10), PacketKind::kBroken);
  EXPECT_EQ(kind(tcp, 2, 0x03), PacketKind::kBroken);  // longer than the packet
  EXPECT_EQ(kind(udp, 25, 0), PacketKind::kBroken);    // UDP's length is not IPv4's
  for (std::size_t bytes = 0; bytes < tcp.size(); ++bytes) {
    const Bytes cut(tcp.begin(), tcp.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_NE(read_headers(cut).kind, PacketKind::kWhole);
    EXPECT_FALSE(compressed(cut));
  }
}

// Headers with a payload that claims to be compressed.
std::optional<Bytes> restored_claim(const Frame& payload, std::mt19937& random) {
  return restored(packet_of(make_frame({.tos = kCompressed}, payload, random)));
}

TEST(CardPacket, ClaimsThatAreNotTrue) {
  std::mt19937 random(6);
  const Frame good = compressed_payload(gradient_payload(1000, 1), kDefault);
  ASSERT_TRUE(restored_claim(good, random));
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {  // truncated bursts
    EXPECT_FALSE(
        restored_claim({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)}, random));
  }
  Frame longer = good;
  longer.push_back(0);
  EXPECT_FALSE(restored_claim(longer, random));
  for (const int layout : {0x00, 0x10, 0x2A, 0xFF}) {
    Frame bad = good;
    bad[2] = static_cast<std::uint8_t>(layout);
    EXPECT_FALSE(restored_claim(bad, random));
  }
  Frame tags = good;  // the last burst's tags go past the end
  tags[3] = tags[4] = 0xFF;
  EXPECT_FALSE(restored_claim(tags, random));
  for (const std::size_t size : {0U, 3U, 4U, 900U, 999U, 1001U, 0x7FFFU, 0x8000U, 0xFFFFU}) {
    Frame bad = good;
    bad[0] = static_cast<std::uint8_t>(size);
    bad[1] = static_cast<std::uint8_t>(size >> 8);
    EXPECT_FALSE(restored_claim(bad, random)) << size;
  }
  // Places of floats that the size does not hold.
  for (const auto& [first, elems] :
       {std::pair{0, 0}, {0, 251}, {997, 1}, {0xFFFF, 1}, {0, 0xFFFF}}) {
    Frame bad{0xE8,
              0x83,
              static_cast<std::uint8_t>(first),
              static_cast<std::uint8_t>(first >> 8),
              static_cast<std::uint8_t>(elems),
              static_cast<std::uint8_t>(elems >> 8)};
    bad.insert(bad.end(), good.begin() + 2, good.end());
    EXPECT_FALSE(restored_claim(bad, random)) << first << ", " << elems;
  }
}

TEST(CardPacket, HostileClaimsAreRestoredAsTheCodecSaysOrNotAtAll) {
  std::mt19937 random(7);
  std::size_t sound = 0;
  for (unsigned round = 0; round < 20000; ++round) {
    Frame payload = compressed_payload(gradient_payload(4 + random() % 200, round), kDefault);
    for (unsigned i = random() % 4; i > 0; --i) {
      payload[random() % payload.size()] = static_cast<std::uint8_t>(random());
    }
    if (round % 3 == 0) payload.resize(1 + random() % payload.size());
    if (payload.size() > 1) payload[1] &= 0x7F;  // FloatsAnywhere has the other form
    const Frame frame = make_frame({.tos = kCompressed}, payload, random);
    const std::optional<Frame> expected = restored_frame(frame);
    const std::optional<Bytes> got = restored(packet_of(frame));
    ASSERT_EQ(got.has_value(), expected.has_value()) << "round " << round;
    if (!got) continue;
    ++sound;
    ASSERT_EQ(*got, packet_of(*expected)) << "round " << round;
  }
  EXPECT_GT(sound, 1000U);
}

TEST(CardPacket, WhatIsNoSettingOfACard) {
  for (const char* text : {"3lc", "inceptionn:ef=on", "inceptionn:bound=2^-16", "nothing"}) {
    EXPECT_THROW(PacketCompressor{text}, Error) << text;
  }
}

}  // namespace
}  // namespace tersewire::nic
