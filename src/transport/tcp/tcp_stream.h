// What two ends of the tcp transport say to each other: records of 8 bytes, each of which says what
// it is and how many bytes follow. No sockets here.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "tersewire/transport.h"

namespace tersewire {

enum class TcpRecord : std::uint8_t {
  kMessage = 0,
  kAlive = 1,    // without bytes
  kAbort = 2,    // with the reason
  kGoodbye = 3,  // without bytes: nothing more comes
};

inline constexpr std::size_t kTcpHeadBytes = 8;

using TcpHead = std::array<std::byte, kTcpHeadBytes>;

// The kind in the highest byte, the length below, in little-endian order.
TcpHead tcp_head(TcpRecord record, std::size_t bytes);

// Puts records together from the bytes of a connection, as they come. One thread at a time.
class TcpReader {
 public:
  struct Record {
    TcpRecord kind;
    Bytes bytes;
  };

  // Where the next bytes belong, and how many at most. At least 1, valid until they are taken().
  std::span<std::byte> room();
  // So many of them are there. Throws kDataLoss for a head that means nothing, and for a message
  // above `longest`.
  void taken(std::size_t bytes, std::uint64_t longest);
  // A record that is complete, in their order.
  std::optional<Record> next();

 private:
  void read_head(std::uint64_t longest);

  TcpHead head_{};
  std::size_t head_bytes_ = 0;
  std::optional<Record> open_;
  std::uint64_t length_ = 0;  // of the open record
  std::size_t held_ = 0;      // bytes of it
  std::deque<Record> complete_;
};

}  // namespace tersewire
