// The card of one node, as software: which of its packets are compressed, restored, dropped or left
// alone. One thread. It knows no sockets; nic/daemon.h feeds it.
//
// TCP sees its own bytes and sequence numbers, since what leaves shorter is as long as it was again
// before it reaches the other end's TCP. Each packet stands for itself, so that order, loss and
// retransmission with other boundaries do not matter.
//
// A packet is compressed where its connection's other end has said, within kBelief, that it has a
// card: by a TCP packet of the connection that came with the compressed code point. A card says so
// on all packets without a payload (SYN, plain acknowledgements) that leave with the mark.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "nic/packet.h"

namespace tersewire::nic {

// How long what the other end said of its card holds. Then packets leave as they came until it says
// so again: a card that was killed stops nobody for longer.
inline constexpr std::chrono::milliseconds kBelief{2000};

// One end's view of a connection. Addresses and ports in the machine's byte order.
struct ConnectionId {
  std::uint32_t local_address = 0;
  std::uint32_t remote_address = 0;
  std::uint16_t local_port = 0;
  std::uint16_t remote_port = 0;

  bool operator==(const ConnectionId&) const = default;
};

// What a sender says before it writes: bytes [begin, end) of its stream, counted from the
// connection's first, are floats; what it said of bytes from `begin` on is void. Nothing is floats
// where begin is end.
struct FloatsNotice {
  ConnectionId connection;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
inline constexpr std::size_t kNoticeBytes = 32;
// A notice as bytes: "TWNC", the connection's fields in their order, begin, end; little-endian.
// Nothing where the bytes are not that, or end is before begin.
std::optional<FloatsNotice> parse_notice(ByteView bytes);

enum class Verdict {
  kAccept,   // as it came
  kReplace,  // by another
  kDrop
};

struct CardCounters {
  std::uint64_t passed = 0;     // not the card's business
  std::uint64_t announced = 0;  // sent without a payload, and with the news of a card
  std::uint64_t compressed = 0;
  std::uint64_t kept = 0;  // left as they came in spite of the mark
  std::uint64_t restored = 0;
  std::uint64_t dropped = 0;       // claimed to be compressed and were not
  std::uint64_t bytes_before = 0;  // of compressed packets, headers and all
  std::uint64_t bytes_after = 0;
  std::uint64_t notices = 0;  // of floats
};

class Card {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // mode=paper takes every marked payload for floats from its first byte on, as the paper does;
  // mode=bounded goes by notices and touches nothing else. Throws as PacketCompressor does.
  explicit Card(std::string_view codec);

  // What is to be done with a packet; for kReplace, `out` is the new one. `out` is not the packet.
  Verdict leaving(ByteView packet, Instant now, Bytes& out);
  Verdict arriving(ByteView packet, Instant now, Bytes& out);

  // A notice of a connection that began before the card did is of no use, and ignored.
  void take(const FloatsNotice& notice);

  [[nodiscard]] const CardCounters& counters() const { return counters_; }

 private:
  struct Stretch {
    std::uint64_t begin;
    std::uint64_t end;
  };
  struct Connection {
    // How far a byte is ahead of `place`, by its sequence number; less than 0 where it is behind.
    [[nodiscard]] std::int32_t ahead(std::uint32_t sequence) const;

    std::optional<std::uint32_t> first_sequence;  // of the stream's first byte
    std::uint64_t place = 0;  // what the stream has come to, as sequence numbers repeat every 4 GiB
    Instant peer_said_so{};
    Instant used{};
    bool peer_has_card = false;
    std::deque<Stretch> floats;  // in order, apart
  };
  struct Hash {
    std::size_t operator()(const ConnectionId& id) const;
  };

  Connection* find(const ConnectionId& id);
  Connection* find_or_add(const ConnectionId& id, Instant now);
  Verdict announce(ByteView packet, const PacketHeaders& headers, Instant now, Bytes& out);
  [[nodiscard]] PayloadFloats floats_of(const PacketHeaders& headers,
                                        const Connection& connection) const;

  PacketCompressor compressor_;
  bool blind_;
  std::unordered_map<ConnectionId, Connection, Hash> connections_;
  Instant forgot_{};  // when those that nobody uses were last removed
  CardCounters counters_;
};

}  // namespace tersewire::nic
