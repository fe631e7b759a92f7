// Messages and frames: packing and parsing (spec/wire-format.md). No sockets, no codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/codec.h"

namespace tersewire {

inline constexpr std::size_t kMaxFrameOverheadBytes = 17;
inline constexpr std::size_t kMessageOverheadBytes = 28;

enum class MessageKind : std::uint8_t {
  kPush = 1,
  kPull = 2,
  kFile = 3,
  kState = 4,
  kDone = 5,
  kOffer = 6,      // a worker's own scalers
  kAgreement = 7,  // the scalers that all workers encode under
  kChecksum = 8,   // of a worker's parameters
  kFiniteness = 9  // which tensors of a bucket are not finite
};
// "push", "pull", "file", ...
std::string_view to_string(MessageKind kind);
// The inverse. Throws kInvalidArgument, naming the known kinds.
MessageKind message_kind_named(std::string_view name);

enum class ElementType : std::uint8_t { kFloat32 = 1, kFloat64 = 2 };

struct MessageHeader {
  MessageKind kind = MessageKind::kPush;
  std::uint32_t sender = 0;  // rank
  std::uint64_t step = 0;
};

// Makes a frame decodable without knowing the tensor.
struct Description {
  ElementType element_type = ElementType::kFloat32;
  std::vector<std::uint64_t> dims;
  // In files and states, for a tensor that is split: the elements of each part except the last, a
  // multiple of 4. 0 if the frame has all elements of `dims`.
  std::uint64_t part_values = 0;

  bool operator==(const Description&) const = default;

  // Product of dims, 1 for rank 0; at most 2^40 in a parsed frame.
  [[nodiscard]] std::size_t elems() const;
  // At most 2^32 in a parsed frame.
  [[nodiscard]] std::uint64_t parts() const;
};

// One frame inside a message, of a part of a tensor. `payload` points into the message's bytes.
struct Frame {
  std::uint32_t tensor = 0;
  std::uint32_t part = 0;  // its position among the tensor's parts
  CodecId codec = CodecId::kFp32;
  bool not_finite = false;
  std::optional<Description> description;
  ByteView payload;

  // The number of elements in the payload, if the frame says it.
  [[nodiscard]] std::optional<std::size_t> elems() const;
};

// Writes one message, frame by frame, into a buffer that it keeps; clear() reuses its memory, so
// packing allocates nothing after the first step, or once per message if take() gives the buffer
// away. One thread at a time.
class MessageWriter {
 public:
  explicit MessageWriter(const MessageHeader& header) { clear(header); }

  // Starts a new message.
  void clear(const MessageHeader& header);

  // Appends a frame. `frame.payload` must not point into this writer. Throws kInvalidArgument if a
  // field exceeds what the format can hold; the message is then as before.
  void add(const Frame& frame);

  // Appends a frame of a part; `encode` appends its payload directly to the message, without a
  // copy. Returns the frame; its payload is valid until anything else is called. If `encode`
  // throws, the message is as before.
  Frame add_encoded(std::uint32_t tensor, std::uint32_t part,
                    const std::function<Encoded(Bytes&)>& encode);

  // Completes the message (count, checksum) and returns its bytes: valid until the next clear().
  ByteView finish();
  // The same, giving the buffer away, or a copy if half of it or more is empty: call clear() before
  // anything else then. `own`: the message stays on the node that packs it, and has no checksum;
  // pass the same to parse_message().
  Bytes take(bool own = false);

 private:
  void write_count();

  Bytes bytes_;
  Bytes head_;            // of the last encoded frame
  std::size_t room_ = 0;  // of the message taken last
  std::uint32_t count_ = 0;
};

// The frames of a checked message, in order. They are read from its bytes, which must outlive this,
// on each access: whoever sent them, they take no memory. Finding one by its position reads those
// before it.
class Frames {
 public:
  class Iterator {
   public:
    using value_type = Frame;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(ByteView rest, std::size_t left);
    const Frame& operator*() const noexcept { return frame_; }
    const Frame* operator->() const noexcept { return &frame_; }
    Iterator& operator++();
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const noexcept { return left_ == other.left_; }

   private:
    void read();

    ByteView rest_;  // behind frame_
    std::size_t left_ = 0;
    Frame frame_;
  };

  Frames() = default;
  // `bytes` begin with `count` frames, which were checked.
  Frames(ByteView bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] Iterator begin() const { return {bytes_, count_}; }
  [[nodiscard]] Iterator end() const { return {}; }
  // Requires at least one frame.
  [[nodiscard]] Frame front() const { return *begin(); }
  // Requires that this frame exists.
  [[nodiscard]] Frame operator[](std::size_t place) const;

 private:
  ByteView bytes_;
  std::size_t count_ = 0;
};

struct Message {
  MessageHeader header;
  Frames frames;
};

// Checks and reads a whole message; the frames point into `bytes`, which must outlive them.
// Payloads are not decoded. Throws kDataLoss naming the offset. Any thread. Cost: one checksum
// pass; no memory for frames, and at most the message's size for scalers.
//
// `own`: the caller packed these bytes, and they have been nowhere else. Their checksum is not
// verified, which is most of the cost.
Message parse_message(ByteView bytes, bool own = false);

// The kind in a message's header, with no other checks: for code that passes messages on. kPush if
// it has none.
MessageKind message_kind(ByteView bytes) noexcept;

// The message of kind checksum for a worker whose parameters sum up to `checksum`, and the checksum
// in such a message.
Bytes checksum_message(std::uint32_t sender, std::uint64_t step, std::uint64_t checksum);
std::uint64_t checksum_in(const Message& message);

// One tensor's contribution to such a checksum: contributions add up modulo 2^64.
std::uint64_t tensor_checksum(std::uint32_t tensor, std::span<const float> values) noexcept;

// The message of kind finiteness for a bucket of parts, at least one of them, numbered as in its
// job: `not_finite` says for each, in the bucket's order, whether it is not finite.
Bytes finiteness_message(std::uint32_t sender, std::uint64_t step, std::uint32_t bucket,
                         const std::vector<bool>& not_finite);
// The contents of such a message, for a bucket of `parts` parts. Throws kDataLoss if it covers more
// or fewer.
std::vector<bool> finiteness_in(const Message& message, std::size_t parts);

// Checks a contributors frame's payload in a job of `workers` workers: its length, its reserved
// bits, and that it leaves out at least one worker. Throws kDataLoss.
void check_contributors(ByteView bitmap, std::size_t workers);

}  // namespace tersewire
