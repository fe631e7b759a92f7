// The pieces of one rank's messages, as they come: which message they belong to, and where in it.
// It knows nothing of MPI.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "tersewire/transport.h"

namespace tersewire {

// Every function that takes what a rank says throws kDataLoss, with a sentence that follows "rank N
// sent", where no rank says that.
class MessagePieces {
 public:
  // Bytes on their way in.
  struct Piece {
    std::shared_ptr<Bytes> bytes;  // of the whole message
    std::size_t offset;
    bool last;
    bool complete = false;

    [[nodiscard]] std::byte* room() const { return bytes->data() + offset; }
  };

  // No piece is longer; a message that is, and only such a one, is announced.
  explicit MessagePieces(std::size_t piece_bytes) : piece_bytes_(piece_bytes) {}

  // The next message has so many bytes, at most `longest`; gives it memory.
  void announce(std::uint64_t bytes, std::uint64_t longest);

  // The next piece has so many bytes. Where no message was announced it is one, of at most
  // `longest` bytes. Valid until take_message() returns its message.
  Piece& begin(std::size_t bytes, bool last, std::uint64_t longest);

  [[nodiscard]] bool is_announced() const { return announced_ != nullptr; }

  // The next message that is whole and has nothing incomplete before it, or null.
  SharedBytes take_message();

 private:
  std::size_t piece_bytes_;
  std::deque<Piece> arriving_;  // in the order of sending
  // A message that was announced, and how much of it has begun.
  std::shared_ptr<Bytes> announced_;
  std::size_t begun_ = 0;
};

}  // namespace tersewire
