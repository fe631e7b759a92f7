// Two cards and a wire between them: what a connection's bytes become under handshakes, notices,
// loss, retransmission with other boundaries, and peers without a card.
#include "nic/card.h"

#include <gtest/gtest.h>

#include "packet_test_support.h"

namespace tersewire::nic {
namespace {

using namespace tersewire::test;
using Instant = Card::Instant;
using std::chrono::milliseconds;

constexpr std::uint8_t kSyn = 0x02;
constexpr std::uint8_t kAck = 0x10;
constexpr std::uint32_t kFirstSequence = 0xFFFFF000;  // the stream soon passes 2^32
const Instant kStart{std::chrono::hours(1)};

// One direction of a TCP connection: from A, 10.0.0.1:1000, to B, 10.0.0.2:2000, or back.
Bytes tcp_packet(bool from_a, std::uint8_t flags, std::uint32_t sequence, const Frame& payload,
                 std::uint8_t tos = kMarked) {
  std::mt19937 random(1);
  Frame frame = make_frame({.tos = tos}, payload, random);
  for (const std::size_t side : {0U, 1U}) {
    const bool is_a = (side == 0) == from_a;
    set_big_endian(frame, 26 + 4 * side, 0x0A00);
    set_big_endian(frame, 28 + 4 * side, is_a ? 1 : 2);
    set_big_endian(frame, 34 + 2 * side, is_a ? 1000 : 2000);
  }
  set_big_endian(frame, 38, sequence >> 16);
  set_big_endian(frame, 40, sequence & 0xFFFF);
  frame[47] = flags;
  set_checksums(frame);
  return packet_of(frame);
}

ByteView payload_of(const Bytes& packet) {
  return ByteView(packet).subspan(read_headers(packet).payload_at);
}

FloatsNotice notice_of(std::uint64_t begin, std::uint64_t end) {
  return {{0x0A000001, 0x0A000002, 1000, 2000}, begin, end};
}

// What arrives of a packet behind two cards; nothing where one dropped it.
struct Pair {
  explicit Pair(const char* codec = "inceptionn:bound=2^-10") : a(codec), b(codec) {}

  Bytes leaving(Card& card, const Bytes& packet, Instant now = kStart) {
    Bytes out;
    return card.leaving(packet, now, out) == Verdict::kReplace ? out : packet;
  }
  std::optional<Bytes> arriving(Card& card, const Bytes& packet, Instant now = kStart) {
    Bytes out;
    switch (card.arriving(packet, now, out)) {
      case Verdict::kAccept:
        return packet;
      case Verdict::kReplace:
        return out;
      case Verdict::kDrop:
        break;
    }
    return {};
  }
  void connect(Instant now = kStart) {
    arriving(b, leaving(a, tcp_packet(true, kSyn, kFirstSequence - 1, {}), now), now);
    arriving(a, leaving(b, tcp_packet(false, kSyn | kAck, 0x5000, {}), now), now);
  }
  Bytes data(std::uint64_t offset, const Frame& payload) {
    return tcp_packet(true, kAck, static_cast<std::uint32_t>(kFirstSequence + offset), payload);
  }

  Card a, b;
};

// A message header of 17 bytes, then floats, then one more header: bytes as a stream has them.
struct Stream {
  explicit Stream(std::size_t elems) : values(heavy_tailed(elems, 1, 1e-2F)) {
    bytes.assign(17, 0x41);
    const Frame floats = bytes_of_values(values, 4 * elems);
    bytes.insert(bytes.end(), floats.begin(), floats.end());
    bytes.insert(bytes.end(), 30, 0x42);
  }
  [[nodiscard]] Frame cut(std::size_t begin, std::size_t end) const {
    return {bytes.begin() + static_cast<std::ptrdiff_t>(begin),
            bytes.begin() + static_cast<std::ptrdiff_t>(std::min(end, bytes.size()))};
  }
  [[nodiscard]] std::uint64_t begin() const { return 17; }
  [[nodiscard]] std::uint64_t end() const { return 17 + 4 * values.size(); }

  Floats values;
  Frame bytes;
};

TEST(Card, AStreamArrivesWithItsHeadersWholeAndItsFloatsWithinTheBound) {
  const Stream stream(20'000);
  Pair pair;
  pair.connect();
  pair.a.take(notice_of(stream.begin(), stream.end()));
  Frame got;
  std::size_t sent_bytes = 0;
  for (std::size_t at = 0; at < stream.bytes.size(); at += 1447) {  // no multiple of four
    const Bytes sent = pair.leaving(pair.a, pair.data(at, stream.cut(at, at + 1447)));
    sent_bytes += sent.size();
    const Bytes arrived = pair.arriving(pair.b, sent).value();
    for (const std::byte b : payload_of(arrived)) got.push_back(std::to_integer<std::uint8_t>(b));
  }
  ASSERT_EQ(got.size(), stream.bytes.size());
  EXPECT_EQ(Frame(got.begin(), got.begin() + 17), stream.cut(0, 17));
  EXPECT_EQ(Frame(got.end() - 30, got.end()), Frame(30, 0x42));
  Floats values(stream.values.size());
  std::memcpy(values.data(), got.data() + 17, 4 * values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], stream.values[i], 0x1p-10F);
  EXPECT_LT(sent_bytes, stream.bytes.size() / 2);
  EXPECT_EQ(pair.a.counters().compressed, pair.b.counters().restored);
  EXPECT_EQ(pair.a.counters().compressed, 56U);
}

TEST(Card, RetransmissionWithOtherBoundariesAndOutOfOrder) {
  const Stream stream(5'000);
  Pair pair;
  pair.connect();
  pair.a.take(notice_of(stream.begin(), stream.end()));
  std::mt19937 random(1);
  for (unsigned round = 0; round < 2000; ++round) {
    const std::size_t begin = random() % (stream.bytes.size() - 1);
    const std::size_t end = std::min(begin + 1 + random() % 1448, stream.bytes.size());
    const Bytes packet = pair.data(begin, stream.cut(begin, end));
    const Bytes arrived = pair.arriving(pair.b, pair.leaving(pair.a, packet)).value();
    ASSERT_EQ(arrived.size(), packet.size());
    const ByteView got = payload_of(arrived);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t at = begin + i;
      const bool is_header = at < stream.begin() || at >= stream.end();
      // Of a float that is cut in two, both parts are as they were.
      const std::size_t float_at = at - (at - stream.begin()) % 4;
      const bool is_cut = !is_header && (float_at < begin || float_at + 4 > end);
      if (is_header || is_cut) {
        ASSERT_EQ(std::to_integer<std::uint8_t>(got[i]), stream.bytes[at]) << at;
      } else if (at == float_at) {
        float value = 0;
        std::memcpy(&value, &got[i], 4);
        ASSERT_NEAR(value, stream.values[(at - 17) / 4], 0x1p-10F);
      }
    }
  }
}

TEST(Card, OnlyAPeerThatSaysSoHasACard) {
  const Frame payload = bytes_of_values(heavy_tailed(300, 1), 1200);
  Pair pair;
  const auto is_compressed = [&](std::uint64_t offset, Instant now) {
    const Bytes sent = pair.leaving(pair.a, pair.data(offset, payload), now);
    return read_headers(sent).code_point == kCompressedCodePoint;
  };
  // The peer is a host without a card: its acknowledgements come as it sent them.
  pair.leaving(pair.a, tcp_packet(true, kSyn, kFirstSequence - 1, {}));
  pair.a.take(notice_of(0, 1 << 20));
  pair.arriving(pair.a, tcp_packet(false, kSyn | kAck, 1, {}));
  EXPECT_FALSE(is_compressed(0, kStart));
  // It gets one, and loses it again.
  pair.arriving(pair.a, pair.leaving(pair.b, tcp_packet(false, kAck, 2, {})));
  EXPECT_TRUE(is_compressed(0, kStart));
  EXPECT_TRUE(is_compressed(1200, kStart + kBelief));
  EXPECT_FALSE(is_compressed(1200, kStart + kBelief + milliseconds(1)));
  pair.arriving(pair.a, pair.leaving(pair.b, tcp_packet(false, kAck, 2, {})), kStart + kBelief * 2);
  EXPECT_TRUE(is_compressed(1200, kStart + kBelief * 2));
  EXPECT_EQ(pair.a.counters().compressed, 3U);
  EXPECT_EQ(pair.a.counters().kept, 2U);
}

TEST(Card, WithoutANoticeNothingIsFloats) {
  const Frame payload = bytes_of_values(heavy_tailed(300, 1), 1200);
  Pair pair;
  pair.connect();
  const auto sent = [&](std::uint64_t offset) {
    return pair.leaving(pair.a, pair.data(offset, payload));
  };
  EXPECT_EQ(sent(0), pair.data(0, payload));
  pair.a.take(notice_of(5000, 10'000));
  EXPECT_EQ(sent(0), pair.data(0, payload));
  EXPECT_NE(sent(6000), pair.data(6000, payload));
  // A write that was cut short at 6000: what comes behind is another.
  pair.a.take(notice_of(6000, 6000));
  EXPECT_EQ(sent(6000), pair.data(6000, payload));
  EXPECT_NE(sent(4000), pair.data(4000, payload));
  // The connection ends, and its successor between the same ports begins.
  pair.leaving(pair.a, tcp_packet(true, kSyn, kFirstSequence + 77, {}));
  EXPECT_EQ(sent(4000), pair.data(4000, payload));
  // Notices of connections that nobody has seen begin.
  FloatsNotice stranger = notice_of(0, 1200);
  stranger.connection.local_port = 5;
  pair.a.take(stranger);
  EXPECT_EQ(pair.a.counters().notices, 2U);
}

TEST(Card, BeyondFourGibibytes) {
  const Frame payload = bytes_of_values(heavy_tailed(300, 1), 1200);
  Pair pair;
  pair.connect();
  const std::uint64_t far = 5'000'000'000;
  pair.a.take(notice_of(far, far + 1200));
  EXPECT_NE(pair.leaving(pair.a, pair.data(far, payload)), pair.data(far, payload));
  EXPECT_EQ(pair.leaving(pair.a, pair.data(far + 1200, payload)), pair.data(far + 1200, payload));
}

// No notice says how far a stream has come that sends no more floats: its packets do, even while
// the peer has no card.
TEST(Card, FourGibibytesOfOtherDataBehindTheFloats) {
  const Frame payload = bytes_of_values(heavy_tailed(300, 1), 1200);
  constexpr std::uint64_t kGibibyte = 1 << 30;
  for (const Instant later : {kStart, kStart + kBelief * 2}) {
    Pair pair;
    pair.connect();
    pair.a.take(notice_of(0, 1200));
    EXPECT_NE(pair.leaving(pair.a, pair.data(0, payload)), pair.data(0, payload));
    for (std::uint64_t at = kGibibyte; at < 4 * kGibibyte; at += kGibibyte) {
      EXPECT_EQ(pair.leaving(pair.a, pair.data(at, payload), later), pair.data(at, payload));
    }
    pair.connect(later);
    const Bytes last = pair.data(4 * kGibibyte, payload);
    EXPECT_EQ(pair.leaving(pair.a, last, later), last);
    // It is the place alone that keeps it as it is.
    pair.a.take(notice_of(4 * kGibibyte, 4 * kGibibyte + 1200));
    EXPECT_NE(pair.leaving(pair.a, last, later), last);
  }
}

TEST(Card, PaperModeTakesEveryPayloadForFloats) {
  const Frame payload = bytes_of_values(heavy_tailed(300, 1), 1201);
  Pair pair("inceptionn:bound=2^-10,mode=paper");
  pair.connect();
  const Bytes sent = pair.leaving(pair.a, pair.data(0, payload));
  EXPECT_EQ(read_headers(sent).code_point, kCompressedCodePoint);
  const Frame frame_payload = compressed_payload(payload, {10, false});
  const ByteView got = payload_of(sent);
  EXPECT_TRUE(std::ranges::equal(got, std::as_bytes(std::span(frame_payload))));
}

TEST(Card, WhatCannotBeRestoredIsDroppedAndSaysNothingOfACard) {
  Pair pair;
  pair.connect(kStart);
  const Instant later = kStart + kBelief * 2;
  EXPECT_FALSE(
      pair.arriving(pair.a, tcp_packet(false, kAck, 9, Frame(100, 0x55), kCompressed), later));
  Bytes fragment = tcp_packet(false, kAck, 9, Frame(100), kCompressed);
  fragment[6] = std::byte{0x20};
  EXPECT_FALSE(pair.arriving(pair.a, fragment, later));
  EXPECT_EQ(pair.a.counters().dropped, 2U);
  pair.a.take(notice_of(0, 4096));
  const Bytes data = pair.data(0, Frame(400));
  EXPECT_EQ(pair.leaving(pair.a, data, later), data);
}

TEST(Card, WhatIsNotItsBusinessPasses) {
  Pair pair;
  pair.connect();
  pair.a.take(notice_of(0, 4096));
  for (const int other : {0x00, 0x24, 0x30, 0xFF}) {
    const auto tos = static_cast<std::uint8_t>(other);
    const Bytes packet = tcp_packet(true, kAck, kFirstSequence, Frame(400), tos);
    EXPECT_EQ(pair.leaving(pair.a, packet), packet);
    EXPECT_EQ(pair.arriving(pair.b, packet), packet);
  }
  std::mt19937 random(1);
  const Bytes udp = packet_of(make_frame({.udp = true}, Frame(400), random));
  EXPECT_EQ(pair.leaving(pair.a, udp), udp);  // nobody can say that the other end has a card
  EXPECT_EQ(pair.a.counters().compressed, 0U);
}

TEST(Card, ManyConnectionsAndManyNoticesTakeBoundedMemory) {
  Card card("inceptionn");
  Bytes out;
  for (std::uint32_t i = 0; i < 70'000; ++i) {
    Bytes syn = tcp_packet(true, kSyn, kFirstSequence - 1, {});
    syn[12] = static_cast<std::byte>(i >> 16);
    syn[13] = static_cast<std::byte>(i >> 8);
    syn[14] = static_cast<std::byte>(i);
    EXPECT_EQ(card.leaving(syn, kStart, out), Verdict::kReplace);
  }
  FloatsNotice notice = notice_of(0, 0);
  notice.connection.local_address = 0x00000001;  // the first of them
  for (std::uint64_t i = 0; i < 1000; ++i) {
    notice.begin = 100 * i;
    notice.end = 100 * i + 40;
    card.take(notice);
  }
  EXPECT_EQ(card.counters().notices, 1000U);
}

TEST(Card, Notices) {
  Bytes bytes = bytes_of({'T', 'W', 'N', 'C', 1, 0, 0, 10, 2, 0, 0, 10, 0xE8, 3, 0xD0, 7,
                          17,  0,   0,   0,   0, 0, 0, 0,  0, 1, 0, 0,  0,    0, 0,    0});
  const FloatsNotice notice = parse_notice(bytes).value();
  EXPECT_EQ(notice.connection, (ConnectionId{0x0A000001, 0x0A000002, 1000, 2000}));
  EXPECT_EQ(notice.begin, 17U);
  EXPECT_EQ(notice.end, 256U);
  bytes[16 + 7] = std::byte{1};  // begins behind its end
  EXPECT_FALSE(parse_notice(bytes));
  EXPECT_FALSE(parse_notice(ByteView(bytes).first(31)));
  bytes[16 + 7] = std::byte{0};
  bytes[0] = std::byte{'t'};
  EXPECT_FALSE(parse_notice(bytes));
}

}  // namespace
}  // namespace tersewire::nic
