#include "grpc_pair.h"

#include <utility>

#include "byte_io.h"
#include "ends.h"
#include "errors.h"

namespace tersewire {

void SendingSide::put(SharedBytes message) {
  if (dropped_) return;
  const std::size_t size = message->size();
  messages_.push_back({.bytes = std::move(message), .begin = end_, .size = size});
  end_ += size + kMessageCost;
  waiting_bytes_ += size;
}

std::optional<SendingSide::Chunk> SendingSide::next(std::size_t most) {
  const auto chunk = peek(most);
  if (chunk) pass(*chunk);
  return chunk;
}

std::optional<SendingSide::Chunk> SendingSide::next_like(const Chunk& other) {
  auto chunk = peek(std::max<std::size_t>(other.bytes, 1));
  if (!chunk || chunk->message != other.message || chunk->offset != other.offset ||
      chunk->bytes != other.bytes) {
    return std::nullopt;
  }
  pass(*chunk);
  return chunk;
}

void SendingSide::pass(const Chunk& chunk) {
  const bool whole = chunk.offset + chunk.bytes == chunk.message->size();
  sent_ += chunk.bytes + (whole ? kMessageCost : 0);
  furthest_ = std::max(furthest_, sent_);
}

std::optional<SendingSide::Chunk> SendingSide::peek(std::size_t most) const {
  if (sent_ == end_) return std::nullopt;
  // The last that begins no later than this.
  auto message = std::ranges::upper_bound(messages_, sent_, {}, &Message::begin);
  --message;
  const auto offset = static_cast<std::size_t>(sent_ - message->begin);
  const std::size_t rest = message->size - offset;
  const std::uint64_t allowed = taken_ + kWindowBytes;
  if (rest > 0 && sent_ >= allowed) return std::nullopt;
  const auto bytes = static_cast<std::size_t>(
      std::min<std::uint64_t>({rest, most, allowed - std::min(sent_, allowed)}));
  const bool whole = bytes == rest;
  // A message's end counts, too: no window holds it where it is full.
  if (whole && sent_ + bytes + kMessageCost > allowed) return std::nullopt;
  return Chunk{.message = message->bytes, .position = sent_, .offset = offset, .bytes = bytes};
}

void SendingSide::hear(std::uint64_t received, std::uint64_t taken) {
  if (dropped_) return;
  if (received > furthest_ || taken > received) {
    fail(ErrorCode::kDataLoss,
         "it says that it received {} bytes and took {}, and {} were sent; run one version "
         "everywhere",
         received, taken, furthest_);
  }
  if (received > received_ && !may_go_on_at(received)) {
    fail(ErrorCode::kDataLoss,
         "it says that it received {} bytes, which is within no message; run one version "
         "everywhere",
         received);
  }
  received_ = std::max(received_, received);
  taken_ = std::max(taken_, taken);
  sent_ = std::max(sent_, received_);
  while (!messages_.empty() &&
         messages_.front().begin + messages_.front().size + kMessageCost <= taken_) {
    waiting_bytes_ -= messages_.front().size;
    messages_.pop_front();
  }
  for (Message& message : messages_) {
    if (message.begin + message.size + kMessageCost > received_) break;
    message.bytes.reset();
  }
}

// Whether a chunk may begin there: not between a message's bytes and the next one's.
bool SendingSide::may_go_on_at(std::uint64_t position) const {
  if (position >= end_) return position == end_;
  const Message& message = *--std::ranges::upper_bound(messages_, position, {}, &Message::begin);
  return position == message.begin || position - message.begin < message.size;
}

void SendingSide::drop() {
  messages_.clear();
  waiting_bytes_ = 0;
  sent_ = received_ = end_;
  dropped_ = true;
}

std::optional<Bytes> ReceivingSide::add(const Record& record, std::uint64_t longest) {
  const RecordHead& head = record.head;
  check_announced(head.total, longest);
  if (head.offset > head.total || record.data.size() > head.total - head.offset ||
      head.offset > head.position || (record.data.empty() && head.total > 0)) {
    fail(ErrorCode::kDataLoss,
         "{} bytes at offset {} are not a piece of a message of {}; run one version everywhere",
         record.data.size(), head.offset, head.total);
  }
  const bool whole = head.offset + record.data.size() == head.total;
  const std::uint64_t end = head.position + record.data.size() + (whole ? kMessageCost : 0);
  // Twice, or after something that was lost: that comes again.
  if (end <= received_ || head.position > received_) return std::nullopt;
  const std::uint64_t begin = head.position - head.offset;
  const std::uint64_t held = received_ - begin;
  if (begin != begin_ || (!open_.empty() && head.total != total_) || held != open_.size()) {
    fail(ErrorCode::kDataLoss,
         "a piece of a message at {} does not follow what came before it; run one version "
         "everywhere",
         head.position);
  }
  if (open_.empty()) {
    total_ = head.total;
    open_.reserve(static_cast<std::size_t>(std::min(total_, kWindowBytes)));
  }
  const ByteView fresh = record.data.subspan(static_cast<std::size_t>(received_ - head.position));
  append(open_, fresh.data(), fresh.size());
  received_ = end;
  if (!whole) return std::nullopt;
  taken_ = std::max(taken_, freed_ + open_.size());  // while the message is still open
  begin_ = end;
  return std::exchange(open_, {});
}

}  // namespace tersewire
