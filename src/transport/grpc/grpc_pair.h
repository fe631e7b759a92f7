// What one node sends to another as a stream with positions (spec/relay-format.md): kept until the
// other has it, sent again where a connection broke, and put together again. No gRPC, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "grpc_record.h"
#include "tersewire/transport.h"

namespace tersewire {

// What may be on its way to a peer that has not taken it.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{8} << 20;
// What a message takes in its stream beside its bytes.
inline constexpr std::uint64_t kMessageCost = 64;

class SendingSide {
 public:
  void put(SharedBytes message);

  struct Chunk {
    SharedBytes message;
    std::uint64_t position;
    std::size_t offset;
    std::size_t bytes;
  };
  // The next chunk, of at most `most` bytes (1 or more), where the window has room for one.
  std::optional<Chunk> next(std::size_t most);
  // The next chunk, where it is this piece of this message, which another peer is sent.
  std::optional<Chunk> next_like(const Chunk& other);

  // What the peer says. Throws kDataLoss where it has what was never sent, or a part that is none.
  void hear(std::uint64_t received, std::uint64_t taken);
  // Sends all again that the peer is not known to have.
  void rewind() { sent_ = received_; }

  // Bytes of messages that the peer has not taken, those begun as a whole.
  [[nodiscard]] std::size_t waiting_bytes() const { return waiting_bytes_; }
  // The peer has all of it.
  [[nodiscard]] bool is_delivered() const { return received_ == end_; }
  // Forgets everything: the peer is gone.
  void drop();

 private:
  [[nodiscard]] std::optional<Chunk> peek(std::size_t most) const;
  [[nodiscard]] bool may_go_on_at(std::uint64_t position) const;
  void pass(const Chunk& chunk);

  struct Message {
    SharedBytes bytes;  // none once the peer has it
    std::uint64_t begin;
    std::size_t size;
  };

  std::deque<Message> messages_;  // those not taken
  std::uint64_t end_ = 0;         // of all that was put
  std::uint64_t sent_ = 0;
  std::uint64_t furthest_ = 0;  // that was ever sent
  std::uint64_t received_ = 0;
  std::uint64_t taken_ = 0;
  std::size_t waiting_bytes_ = 0;
  bool dropped_ = false;
};

class ReceivingSide {
 public:
  // A message that this completes. Throws kDataLoss for a record that is none of such a stream, and
  // for a message above `longest`.
  std::optional<Bytes> add(const Record& record, std::uint64_t longest);
  // The application took a message of so many bytes.
  void took(std::size_t bytes) { freed_ += bytes + kMessageCost; }

  [[nodiscard]] std::uint64_t received() const { return received_; }
  // Never falls.
  [[nodiscard]] std::uint64_t taken() {
    taken_ = std::max(taken_, freed_ + open_.size());
    return taken_;
  }

 private:
  std::uint64_t received_ = 0;
  std::uint64_t freed_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t begin_ = 0;  // of the open message, or the next
  std::uint64_t total_ = 0;
  Bytes open_;
};

}  // namespace tersewire
