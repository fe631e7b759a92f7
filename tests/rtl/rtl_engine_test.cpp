// The engines of rtl/ as a whole: every word that leaves is held against what the library's codec
// makes of the packet.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "Vcompression_engine.h"
#include "Vdecompression_engine.h"
#include "rtl_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;
using kernels::BurstFormat;
using Compressor = Engine<Vcompression_engine>;
using Decompressor = Engine<Vdecompression_engine>;

constexpr BurstFormat kDefault{10, true};
constexpr Stalls kNone{};
constexpr Stalls kSome{64, 64};
constexpr Stalls kSlowIn{200, 10};
constexpr Stalls kSlowOut{10, 200};

// The packets that left are these; says which is the first that is not.
void expect_frames(const std::vector<Frame>& got, const std::vector<Frame>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    if (got[i] == expected[i]) continue;
    const auto differs = std::ranges::mismatch(got[i], expected[i]);
    ADD_FAILURE() << "packet " << i << ": " << got[i].size() << " bytes for " << expected[i].size()
                  << ", different from byte " << differs.in1 - got[i].begin();
    return;
  }
}

struct Counters {
  unsigned passed, changed, kept, dropped;
  friend bool operator==(const Counters&, const Counters&) = default;
};
template <typename Model>
Counters counters(Model& model) {
  return {model.passed, model.changed, model.kept, model.dropped};
}

// Frames through the compressor, and what leaves it through the decompressor; both as the codec
// says. Returns how many were compressed.
std::size_t expect_round_trip(const std::vector<Frame>& frames, BurstFormat format, Stalls stalls,
                              unsigned seed) {
  SCOPED_TRACE(testing::Message() << codec_text(format) << ", stalls " << stalls.in << " and "
                                  << stalls.out << " in 256, seed " << seed);
  Compressor compressor(seed);
  compressor.set_layout(layout_byte(format));
  std::vector<Frame> compressed, restored;
  unsigned changed = 0;
  for (const Frame& frame : frames) {
    compressed.push_back(compressed_frame(frame, format));
    changed += compressed.back() == frame ? 0 : 1;
    restored.push_back(compressed.back() == frame ? frame
                                                  : restored_frame(compressed.back()).value());
  }
  const auto count = static_cast<unsigned>(frames.size());
  expect_frames(compressor.run(frames, stalls).frames, compressed);
  EXPECT_EQ(counters(compressor.model()), (Counters{0, changed, count - changed, 0}));
  Decompressor decompressor(seed + 1);
  expect_frames(decompressor.run(compressed, stalls).frames, restored);
  EXPECT_EQ(counters(decompressor.model()), (Counters{count - changed, changed, 0, 0}));
  return changed;
}

Frame gradient_payload(std::size_t bytes, unsigned seed, float scale = 1e-2F) {
  return bytes_of_values(heavy_tailed(bytes / 4, seed, scale), bytes);
}

Headers some_headers(std::mt19937& random) {
  return {.udp = random() % 2 == 0,
          .ip_option_words = random() % 11,
          .tcp_option_words = random() % 11,
          .udp_checksum = random() % 4 != 0};
}

TEST(RtlEngine, PacketsOfEveryLength) {
  for (const Stalls stalls : {kNone, kSome, kSlowIn, kSlowOut}) {
    std::mt19937 random(stalls.in + 7);
    std::vector<Frame> frames;
    for (std::size_t bytes = 1; bytes <= 300; ++bytes) {
      frames.push_back(make_frame(some_headers(random), gradient_payload(bytes, 1), random));
    }
    for (std::size_t bytes = 1400; bytes <= 1460; ++bytes) {
      frames.push_back(make_frame({}, gradient_payload(bytes, 2), random));
    }
    EXPECT_GT(expect_round_trip(frames, kDefault, stalls, 3), 300U);
  }
}

TEST(RtlEngine, EveryHeader) {
  std::mt19937 random(5);
  std::vector<Frame> frames;
  for (std::size_t ip = 0; ip <= 10; ++ip) {
    for (std::size_t tcp = 0; tcp <= 11; ++tcp) {
      for (const std::size_t bytes : {30U, 61U, 64U, 200U}) {
        frames.push_back(make_frame({.udp = tcp == 11,
                                     .ip_option_words = ip,
                                     .tcp_option_words = std::min<std::size_t>(tcp, 10)},
                                    gradient_payload(bytes, static_cast<unsigned>(ip)), random));
      }
    }
  }
  EXPECT_EQ(expect_round_trip(frames, kDefault, kNone, 1), frames.size());
  EXPECT_EQ(expect_round_trip(frames, kDefault, kSome, 2), frames.size());
}

TEST(RtlEngine, EveryModeAndBound) {
  for (unsigned b = 1; b <= 15; ++b) {
    for (const bool bounded : {true, false}) {
      std::mt19937 random(b);
      std::vector<Frame> frames;
      for (unsigned i = 0; i < 8; ++i) {
        const std::size_t bytes = 1000 + random() % 460;
        // From mostly below the bound to mostly above 1.
        frames.push_back(make_frame(
            some_headers(random),
            gradient_payload(bytes, i, std::ldexp(1.0F, -2 * static_cast<int>(i))), random));
        // All exponents, NaN and infinities among them.
        Frame any(bytes);
        for (std::uint8_t& byte : any) byte = static_cast<std::uint8_t>(random());
        for (std::size_t at = 0; at + 4 <= bytes; at += 4) {
          if (random() % 3 != 0) any[at + 3] = static_cast<std::uint8_t>(0x30 + random() % 16);
        }
        frames.push_back(make_frame({}, any, random));
      }
      EXPECT_GT(expect_round_trip(frames, {b, bounded}, kSome, b), 4U);
    }
  }
}

TEST(RtlEngine, LongestPackets) {
  std::mt19937 random(9);
  std::vector<Frame> frames;
  for (const std::size_t cut : {0U, 1U, 2U, 30U, 31U, 32U}) {
    frames.push_back(make_frame({}, gradient_payload(kLongestPacket - 54 - cut, 4), random));
    // Expands up to its end.
    frames.push_back(make_frame(
        {.udp = true}, bytes_of_values(Floats(2300, 3.0F), kLongestPacket - 42 - cut), random));
  }
  EXPECT_EQ(expect_round_trip(frames, kDefault, kNone, 1), 6U);
  EXPECT_EQ(expect_round_trip(frames, kDefault, kSlowOut, 1), 6U);
}

TEST(RtlEngine, APacketThatWouldExpandLeavesAsItCame) {
  std::mt19937 random(9);
  std::vector<Frame> frames;
  for (const std::size_t bytes : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 32U, 100U, 1448U}) {
    frames.push_back(make_frame({}, bytes_of_values(Floats(400, -7.0F), bytes), random));
  }
  EXPECT_EQ(expect_round_trip(frames, kDefault, kSome, 1), 0U);
  // Two zeros are eight bytes, and five compressed: the shortest that gets shorter.
  EXPECT_EQ(expect_round_trip({make_frame({}, Frame(8), random)}, kDefault, kNone, 1), 1U);
  EXPECT_EQ(expect_round_trip({make_frame({}, Frame(5), random)}, kDefault, kNone, 1), 0U);
}

// Where the data directory has gradients, rtl_gradients_test.py names a file of them here.
TEST(RtlEngine, RealGradients) {
  const char* path = std::getenv("TERSEWIRE_RTL_VALUES");
  if (path == nullptr) GTEST_SKIP() << "TERSEWIRE_RTL_VALUES names no file of values";
  std::ifstream file(path, std::ios::binary);
  const Frame values{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(values.size(), 1'000'000U);
  std::mt19937 random(1);
  for (const BurstFormat format : {BurstFormat{10, true}, BurstFormat{10, false},
                                   BurstFormat{8, true}, BurstFormat{6, false}}) {
    std::vector<Frame> frames;
    for (std::size_t at = 0; at + 1448 <= values.size(); at += 1448) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
      frames.push_back(make_frame({.tcp_option_words = 3}, Frame(begin, begin + 1448), random));
    }
    EXPECT_EQ(expect_round_trip(frames, format, kNone, 1), frames.size());
  }
}

// --- What is not to be touched

Frame patched(Frame frame, std::size_t at, int value) {
  frame.at(at) = static_cast<std::uint8_t>(value);
  return frame;
}

// Frames that neither engine may change, whatever mark they carry.
std::vector<Frame> foreign_frames(std::uint8_t tos) {
  std::mt19937 random(2);
  const Headers headers{.tos = tos};
  const Frame good = make_frame(headers, gradient_payload(500, 1), random);
  std::vector<Frame> frames{
      patched(patched(good, 12, 0x86), 13, 0xDD),  // IPv6
      patched(patched(good, 12, 0x81), 13, 0x00),  // a VLAN tag
      patched(good, 13, 0x06),                     // ARP
      patched(good, 14, 0x65),                     // not version 4
      patched(good, 23, 1),                        // ICMP
      make_frame(headers, {}, random),             // a TCP acknowledgement
      make_frame({.udp = true, .tos = tos}, {}, random),
  };
  for (const std::ptrdiff_t bytes : {1, 14, 15, 16, 31, 32, 33}) {  // nothing to classify
    frames.emplace_back(good.begin(), good.begin() + bytes);
  }
  return frames;
}

TEST(RtlEngine, WithoutTheMarkPacketsPassWhole) {
  std::mt19937 random(3);
  std::vector<Frame> frames = foreign_frames(kMarked);
  for (int tos = 0; tos < 256; ++tos) {
    if ((tos & 0xFC) == kMarked) continue;
    Headers headers = some_headers(random);
    headers.tos = static_cast<std::uint8_t>(tos);
    frames.push_back(make_frame(headers, gradient_payload(1 + random() % 300, 1), random));
  }
  for (const Stalls stalls : {kNone, kSome}) {
    Compressor compressor(1);
    expect_frames(compressor.run(frames, stalls).frames, frames);
    EXPECT_EQ(counters(compressor.model()),
              (Counters{static_cast<unsigned>(frames.size()), 0, 0, 0}));
  }
  std::vector<Frame> arriving = foreign_frames(kCompressed);
  for (int tos = 0; tos < 256; ++tos) {
    if ((tos & 0xFC) == kCompressed) continue;
    Headers headers = some_headers(random);
    headers.tos = static_cast<std::uint8_t>(tos);
    arriving.push_back(make_frame(headers, gradient_payload(1 + random() % 300, 1), random));
  }
  for (const Stalls stalls : {kNone, kSome}) {
    Decompressor decompressor(1);
    expect_frames(decompressor.run(arriving, stalls).frames, arriving);
    EXPECT_EQ(counters(decompressor.model()),
              (Counters{static_cast<unsigned>(arriving.size()), 0, 0, 0}));
  }
}

// Headers that lie, fragments, and packets that are too long or end too early: a frame of either
// mark, and whether the stream cuts it off.
std::vector<Frame> broken_frames(std::uint8_t tos) {
  std::mt19937 random(4);
  const Frame tcp = make_frame({.tos = tos}, gradient_payload(500, 1), random);
  const Frame udp = make_frame({.udp = true, .tos = tos}, gradient_payload(500, 1), random);
  std::vector<Frame> frames{
      patched(tcp, 14, 0x44),  // an IPv4 header of 16 bytes
      patched(tcp, 46, 0x40),  // a TCP header of 16
      patched(tcp, 20, 0x20),  // a first fragment
      patched(tcp, 21, 0x10),  // a later one
      patched(udp, 20, 0x20),
      patched(udp, 39, udp[39] - 1),         // UDP's length is not IPv4's
      patched(patched(tcp, 16, 0), 17, 39),  // shorter than its headers
      patched(tcp, 16, 0x24),                // longer than the longest
      patched(tcp, 16, 0xFF),
      patched(tcp, 17, tcp[17] + 1),  // longer than the frame, by a byte
      patched(tcp, 16, 0x20),         // and by far
      make_frame({.tos = tos}, gradient_payload(kLongestPacket - 53, 1), random),
      make_frame({.tos = tos}, gradient_payload(40'000, 1), random),  // more than the buffers hold
  };
  for (std::size_t bytes = 34; bytes < 200; bytes += 3) {
    frames.emplace_back(tcp.begin(), tcp.begin() + static_cast<std::ptrdiff_t>(bytes));
    frames.emplace_back(udp.begin(), udp.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  return frames;
}

TEST(RtlEngine, BrokenPacketsLeaveTheCompressorAsTheyCame) {
  for (const Stalls stalls : {kNone, kSome, kSlowOut}) {
    Compressor compressor(2);
    const std::vector<Frame> frames = broken_frames(kMarked);
    expect_frames(compressor.run(frames, stalls).frames, frames);
    EXPECT_EQ(compressor.model().changed + compressor.model().dropped, 0U);
  }
}

TEST(RtlEngine, BrokenPacketsWithTheCompressedMarkAreDropped) {
  std::mt19937 random(4);
  const Frame good = compressed_frame(make_frame({}, gradient_payload(900, 1), random), kDefault);
  std::vector<Frame> frames = broken_frames(kCompressed);
  const auto dropped = static_cast<unsigned>(frames.size());
  frames.push_back(good);
  for (const Stalls stalls : {kNone, kSome, kSlowOut}) {
    Decompressor decompressor(2);
    expect_frames(decompressor.run(frames, stalls).frames, {restored_frame(good).value()});
    EXPECT_EQ(counters(decompressor.model()), (Counters{0, 1, 0, dropped}));
  }
}

TEST(RtlEngine, AnEthernetTrailerIsNoPayload) {
  std::mt19937 random(4);
  std::vector<Frame> frames, expected, restored;
  for (const std::size_t more : {1U, 6U, 31U, 32U, 33U, 100U, 40'000U}) {
    const Frame frame = make_frame({}, gradient_payload(300 + more % 40, 1), random);
    expected.push_back(compressed_frame(frame, kDefault));
    restored.push_back(restored_frame(expected.back()).value());
    frames.push_back(frame);
    frames.back().resize(frame.size() + more, 0x5A);
  }
  Compressor compressor(3);
  expect_frames(compressor.run(frames, kSome).frames, expected);
  for (Frame& frame : expected) frame.resize(frame.size() + 50, 0x5A);
  Decompressor decompressor(3);
  expect_frames(decompressor.run(expected, kSome).frames, restored);
}

TEST(RtlEngine, RoutersBitsOfTheToSAreKept) {
  std::mt19937 random(4);
  std::vector<Frame> frames;
  for (const int ecn : {0, 1, 2, 3}) {
    frames.push_back(make_frame({.tos = static_cast<std::uint8_t>(kMarked | ecn)},
                                gradient_payload(100, 1), random));
  }
  EXPECT_EQ(expect_round_trip(frames, kDefault, kNone, 1), 4U);
}

// The engines carry an error of a checksum along, so that the receiver's stack still finds it.
TEST(RtlEngine, AWrongChecksumStaysWrong) {
  std::mt19937 random(4);
  for (const bool udp : {false, true}) {
    const Frame good = make_frame({.udp = udp}, gradient_payload(700, 1), random);
    const std::size_t at = Layout(good).sum_at;
    for (const std::size_t wrong_at : {std::size_t{24}, at}) {
      Frame bad = good;
      set_big_endian(bad, wrong_at, (big_endian(bad, wrong_at) + 0x1234U) % 0xFFFF);
      Compressor compressor(1);
      const Frame sent = compressor.run({bad}, kNone).frames.at(0);
      EXPECT_NE(big_endian(sent, wrong_at), big_endian(compressed_frame(good, kDefault), wrong_at));
      Decompressor decompressor(1);
      const Frame got = decompressor.run({sent}, kNone).frames.at(0);
      const std::uint16_t right =
          big_endian(restored_frame(compressed_frame(good, kDefault)).value(), wrong_at);
      EXPECT_EQ(big_endian(got, wrong_at), (right + 0x1234U) % 0xFFFF);
    }
  }
}

// --- Bytes from outside

TEST(RtlEngine, HostilePayloadsAreDroppedOrAreWhatTheCodecSays) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<Frame> frames, expected;
    unsigned dropped = 0;
    for (int i = 0; i < 1500; ++i) {
      const BurstFormat format{1 + static_cast<unsigned>(random() % 15), random() % 2 == 0};
      Frame payload = compressed_payload(
          gradient_payload(8 + random() % 200, static_cast<unsigned>(i), 0.05F), format);
      switch (random() % 8) {
        case 0:
          payload.resize(1 + random() % payload.size());
          break;  // cut off
        case 1:
          payload.resize(payload.size() + 1 + random() % 40);
          break;  // more behind it
        case 2:
          payload[0] = static_cast<std::uint8_t>(random());
          break;  // another length
        case 3:
          payload[1] = static_cast<std::uint8_t>(random());
          break;
        case 4:
          payload[2] = static_cast<std::uint8_t>(random());
          break;  // another layout
        case 5:
          payload[3 + random() % 2] ^= static_cast<std::uint8_t>(random());
          break;  // tags
        case 6:
          for (std::uint8_t& byte : payload) byte = static_cast<std::uint8_t>(random());
          break;
        default:
          payload[random() % payload.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      }
      Headers headers = some_headers(random);
      headers.tos = kCompressed;
      frames.push_back(make_frame(headers, payload, random));
      // The frame may be padded; its lengths say where the payload ends.
      if (const std::optional<Frame> frame = restored_frame(frames.back())) {
        expected.push_back(*frame);
      } else {
        ++dropped;
      }
    }
    Decompressor decompressor(seed);
    const Stalls stalls = seed == 1 ? kNone : seed == 2 ? kSome : kSlowOut;
    expect_frames(decompressor.run(frames, stalls).frames, expected);
    EXPECT_EQ(decompressor.model().dropped, dropped);
    EXPECT_GT(dropped, 300U);
    EXPECT_GT(expected.size(), 100U);
  }
}

TEST(RtlEngine, TheRegisterTakesOnlyWhatTheFormatKnows) {
  Compressor compressor(1);
  EXPECT_EQ(compressor.model().layout, 0x1A);
  for (const int bad : {0x00, 0x10, 0x2A, 0x8A}) {
    compressor.set_layout(static_cast<std::uint8_t>(bad));
    EXPECT_EQ(compressor.model().layout, 0x1A);
  }
  compressor.set_layout(0x08);
  EXPECT_EQ(compressor.model().layout, 0x08);
}

// --- Rate

TEST(RtlEngine, AWordACycle) {
  std::mt19937 random(1);
  std::map<std::size_t, std::vector<Frame>> by_bytes;
  for (const std::size_t bytes : {10U, 64U, 300U, 1448U, 8948U}) {
    for (int i = 0; i < 60; ++i) {
      by_bytes[bytes].push_back(
          make_frame({.tcp_option_words = 3}, gradient_payload(bytes, 1, 1e-3F), random));
    }
  }
  for (const auto& [bytes, frames] : by_bytes) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes of payload");
    Compressor compressor(1);
    EXPECT_EQ(compressor.run(frames, kNone).refused, 0U);
    std::vector<Frame> compressed;
    std::size_t restored_words = 0;
    for (const Frame& frame : frames) {
      compressed.push_back(compressed_frame(frame, kDefault));
      restored_words += (frame.size() + 31) / 32;
    }
    Decompressor decompressor(1);
    const Traffic traffic = decompressor.run(compressed, kNone);
    // Behind what the first packet waits, as many cycles as it sends words; a few at the start.
    EXPECT_LE(traffic.cycles - traffic.left.at(0) + traffic.arrived.at(0), restored_words + 5);
  }
}

}  // namespace
}  // namespace tersewire
