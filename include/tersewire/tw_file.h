// .tw files, and encoder states in files: a message for each part of an array, one after the other
// (spec/wire-format.md, "Files").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tersewire/byte_source.h"
#include "tersewire/bytes.h"
#include "tersewire/message.h"

namespace tersewire {

// Whether messages of this kind make such files.
inline bool is_file_or_state(MessageKind kind) {
  return kind == MessageKind::kFile || kind == MessageKind::kState;
}

// Whether the first bytes of a file are those of such a file; 4 are enough.
bool begins_as_tw_file(ByteView head) noexcept;

class TwParts;

// Reads such a file part by part. Holds one part's message at a time, and takes no memory for bytes
// that have not arrived. One thread.
class TwReader {
 public:
  // `source`, which begins with the file, must outlive this.
  explicit TwReader(ByteSource& source);
  ~TwReader();
  TwReader(const TwReader&) = delete;
  TwReader& operator=(const TwReader&) = delete;

  // The message of the next part, which has one frame, with a description; nothing after the last.
  // Its payload stays valid until the next call, and is not decoded. Throws kDataLoss if the file
  // is malformed, damaged or truncated, kInvalidArgument for a message of another kind, and what
  // the source throws; reading is over then. Cost: one pass for the checksum.
  std::optional<Message> next();

 private:
  // Holds `bytes` bytes, or as many as there are.
  void hold(std::size_t bytes);

  ByteSource& source_;
  std::unique_ptr<TwParts> parts_;
  Bytes buffer_;
  std::size_t held_ = 0;  // bytes of the buffer that have arrived
  std::size_t used_ = 0;  // of these, those of the message returned
};

// The messages of such a file, all of it: they point into `bytes`, which must outlive them. Throws
// as TwReader does. Any thread.
std::vector<Message> parse_tw_file(ByteView bytes);

}  // namespace tersewire
