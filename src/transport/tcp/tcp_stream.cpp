#include "tcp_stream.h"

#include <algorithm>

#include "ends.h"
#include "errors.h"

namespace tersewire {
namespace {

// Memory is made as bytes come: a head alone costs its receiver no more than this.
constexpr std::size_t kFirstBytes = std::size_t{1} << 20;
constexpr unsigned kKindShift = 56;
constexpr std::uint64_t kMostLength = (std::uint64_t{1} << kKindShift) - 1;

}  // namespace

TcpHead tcp_head(TcpRecord record, std::size_t bytes) {
  const std::uint64_t word = static_cast<std::uint64_t>(record) << kKindShift | bytes;
  TcpHead head;
  for (std::size_t i = 0; i < head.size(); ++i) {
    head[i] = static_cast<std::byte>(word >> (8 * i));
  }
  return head;
}

std::span<std::byte> TcpReader::room() {
  if (!open_) return std::span(head_).subspan(head_bytes_);
  if (held_ == open_->bytes.size()) {
    open_->bytes.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(length_, 2 * open_->bytes.size())));
  }
  return std::span(open_->bytes).subspan(held_);
}

void TcpReader::taken(std::size_t bytes, std::uint64_t longest) {
  if (!open_) {
    head_bytes_ += bytes;
    if (head_bytes_ < head_.size()) return;
    read_head(longest);
  } else {
    held_ += bytes;
  }
  if (held_ < length_) return;
  complete_.push_back(std::move(*open_));
  open_.reset();
}

void TcpReader::read_head(std::uint64_t longest) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < head_.size(); ++i) {
    word |= std::to_integer<std::uint64_t>(head_[i]) << (8 * i);
  }
  head_bytes_ = 0;
  held_ = 0;
  length_ = word & kMostLength;
  const std::uint64_t kind = word >> kKindShift;
  if (kind > static_cast<std::uint64_t>(TcpRecord::kGoodbye)) {
    fail(ErrorCode::kDataLoss,
         "a record of kind {} is unknown to this version; run one version everywhere", kind);
  }
  const auto record = static_cast<TcpRecord>(kind);
  const std::uint64_t most = record == TcpRecord::kMessage ? longest
                             : record == TcpRecord::kAbort ? kMostReasonBytes
                                                           : 0;
  check_announced(length_, most);
  open_ = Record{.kind = record, .bytes = Bytes(std::min<std::uint64_t>(length_, kFirstBytes))};
}

std::optional<TcpReader::Record> TcpReader::next() {
  if (complete_.empty()) return std::nullopt;
  Record record = std::move(complete_.front());
  complete_.pop_front();
  return record;
}

}  // namespace tersewire
