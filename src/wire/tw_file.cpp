#include "tersewire/tw_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "byte_io.h"
#include "errors.h"
#include "frame.h"
#include "message_head.h"

namespace tersewire {
namespace {

constexpr std::size_t kMaxHeadBytes = kMessageOverheadBytes + kMaxFrameHeadBytes;
constexpr std::size_t kLeastHeldBytes = std::size_t{1} << 20;

bool begins_as_message(ByteView bytes) {
  return bytes.size() >= sizeof(kMessageMagic) &&
         std::memcmp(bytes.data(), kMessageMagic, sizeof(kMessageMagic)) == 0;
}

// How long the message is that `bytes` begin with, by what it says itself and parse_message() has
// yet to check; `bytes` are kMaxHeadBytes of it or all that there is. Their own length where they
// do not begin as a file or a state does, which parse_message() refuses.
std::size_t message_bytes(ByteView bytes) {
  if (bytes.size() < kMessageOverheadBytes || !begins_as_message(bytes) ||
      bytes[kVersionOffset] > std::byte{kMessageVersion}) {
    return bytes.size();
  }
  if (!is_file_or_state(message_kind(bytes))) {
    fail(ErrorCode::kInvalidArgument,
         "it is a message of another kind than a .tw file; look at it with 'tersewire inspect'");
  }
  std::uint32_t count;
  std::memcpy(&count, bytes.data() + kCountOffset, sizeof(count));
  if (count != 1) fail(ErrorCode::kDataLoss, "it promises {} frames, and its kind has one", count);
  ByteReader reader(bytes);
  reader.take(kMessageOverheadBytes, "header");
  Frame frame;
  const std::size_t payload_bytes = read_frame_head(reader, frame);
  return reader.offset() + payload_bytes;
}

}  // namespace

bool begins_as_tw_file(ByteView head) noexcept {
  return begins_as_message(head) && is_file_or_state(message_kind(head));
}

// What the messages of one file must be to each other.
class TwParts {
 public:
  [[nodiscard]] bool complete() const { return next_ > 0 && next_ == description_.parts(); }

  // Says which part `task` is about where it throws.
  template <typename Task>
  auto in_part(Task&& task) const {
    try {
      return task();
    } catch (const Error& error) {
      if (next_ == 0) throw;
      fail(error.code(), "part {} of {}, at byte {}: {}", next_, description_.parts(), offset_,
           error.what());
    }
  }

  // The next part's message, of these bytes.
  Message take(ByteView bytes) {
    if (bytes.empty() && next_ > 0) {
      fail(ErrorCode::kDataLoss, "it ends after {} of its {} parts; use another copy of it", next_,
           description_.parts());
    }
    Message message = in_part([&] {
      Message parsed = parse_message(bytes);
      check(parsed);
      return parsed;
    });
    ++next_;
    offset_ += bytes.size();
    return message;
  }

  [[noreturn]] void fail_longer() const {
    fail(ErrorCode::kDataLoss, "more follows its last part, at byte {}: it was altered", offset_);
  }

 private:
  void check(const Message& message) {
    const Frame frame = message.frames.front();
    if (next_ == 0) {
      kind_ = message.header.kind;
      description_ = *frame.description;
    }
    if (message.header.kind != kind_) {
      fail(ErrorCode::kDataLoss, "a {} follows parts of a {}", to_string(message.header.kind),
           to_string(kind_));
    }
    if (*frame.description != description_) {
      fail(ErrorCode::kDataLoss, "it is of an array of another shape, type or cut than part 0");
    }
    if (frame.part != next_) {
      fail(ErrorCode::kDataLoss, "part {} stands where part {} belongs", frame.part, next_);
    }
    if (frame.not_finite) return;
    if (codec_ && *codec_ != frame.codec) {
      fail(ErrorCode::kDataLoss, "it is of codec {}, and the parts before it of codec {}",
           static_cast<int>(frame.codec), static_cast<int>(*codec_));
    }
    codec_ = frame.codec;
  }

  MessageKind kind_ = MessageKind::kFile;
  Description description_;
  std::optional<CodecId> codec_;  // of the parts that are finite
  std::uint64_t next_ = 0;
  std::uint64_t offset_ = 0;  // of the next part in the file
};

TwReader::TwReader(ByteSource& source) : source_(source), parts_(std::make_unique<TwParts>()) {}

TwReader::~TwReader() = default;

void TwReader::hold(std::size_t bytes) {
  const auto left = source_.left();
  const bool there = left && held_ + *left >= bytes;
  while (held_ < bytes) {
    if (held_ == buffer_.size()) {
      buffer_.resize(there ? bytes : std::min(bytes, std::max(2 * held_, kLeastHeldBytes)));
    }
    const std::size_t end = std::min(buffer_.size(), bytes);
    const std::size_t got = source_.read(std::span(buffer_).subspan(held_, end - held_));
    if (got == 0) return;
    held_ += got;
  }
}

std::optional<Message> TwReader::next() {
  held_ -= used_;
  if (held_ > 0) std::memmove(buffer_.data(), buffer_.data() + used_, held_);
  used_ = 0;
  hold(kMaxHeadBytes);
  if (parts_->complete()) {
    if (held_ > 0) parts_->fail_longer();
    return std::nullopt;
  }
  const std::size_t bytes =
      parts_->in_part([&] { return message_bytes(ByteView(buffer_).first(held_)); });
  hold(bytes);
  used_ = std::min(bytes, held_);
  return parts_->take(ByteView(buffer_).first(used_));
}

std::vector<Message> parse_tw_file(ByteView bytes) {
  std::vector<Message> messages;
  TwParts parts;
  std::size_t at = 0;
  while (!parts.complete()) {
    const ByteView rest = bytes.subspan(at);
    const std::size_t length = parts.in_part(
        [&] { return message_bytes(rest.first(std::min(rest.size(), kMaxHeadBytes))); });
    const std::size_t there = std::min(length, rest.size());
    messages.push_back(parts.take(rest.first(there)));
    at += there;
  }
  if (at < bytes.size()) parts.fail_longer();
  return messages;
}

}  // namespace tersewire
