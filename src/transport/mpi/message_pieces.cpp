#include "message_pieces.h"

#include <utility>

#include "errors.h"

namespace tersewire {

void MessagePieces::announce(std::uint64_t bytes, std::uint64_t longest) {
  if (announced_ || bytes <= piece_bytes_) {
    fail(ErrorCode::kDataLoss, "the announcement of {} bytes where there is none", bytes);
  }
  if (bytes > longest) {
    fail(ErrorCode::kDataLoss, "the announcement of {} bytes, and the longest message has {}",
         bytes, longest);
  }
  announced_ = std::make_shared<Bytes>(bytes);
  begun_ = 0;
}

MessagePieces::Piece& MessagePieces::begin(std::size_t bytes, bool last, std::uint64_t longest) {
  if (bytes > piece_bytes_) {
    fail(ErrorCode::kDataLoss, "a piece of {} bytes, and the longest has {}", bytes, piece_bytes_);
  }
  if (!announced_) {
    if (!last) fail(ErrorCode::kDataLoss, "a part of no message");
    if (bytes > longest) {
      fail(ErrorCode::kDataLoss, "{} bytes, and the longest message has {}", bytes, longest);
    }
    return arriving_.emplace_back(Piece{std::make_shared<Bytes>(bytes), 0, true});
  }
  const std::size_t left = announced_->size() - begun_;
  if (last ? bytes != left : bytes >= left) {
    fail(ErrorCode::kDataLoss, "{} bytes where {} were left of a message", bytes, left);
  }
  Piece& piece = arriving_.emplace_back(Piece{announced_, begun_, last});
  begun_ += bytes;
  if (last) announced_.reset();
  return piece;
}

SharedBytes MessagePieces::take_message() {
  while (!arriving_.empty() && arriving_.front().complete) {
    const Piece piece = std::move(arriving_.front());
    arriving_.pop_front();
    if (piece.last) return piece.bytes;
  }
  return nullptr;
}

}  // namespace tersewire
