// A file that is read from its beginning to its end.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tersewire/byte_source.h"
#include "tersewire/bytes.h"

namespace tersewire::apps {

// A regular file, a pipe or, for -, standard input. Every function throws an Error that names it
// and says what to do.
class InputStream : public ByteSource {
 public:
  // A device may never end, and is refused.
  explicit InputStream(const std::string& path);
  ~InputStream() override;
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // The same; nothing where the file does not exist.
  static std::unique_ptr<InputStream> if_exists(const std::string& path);

  std::size_t read(std::span<std::byte> out) override;
  // Of a regular file, as long as it does not change.
  [[nodiscard]] std::optional<std::uint64_t> left() const override;

  // The next `bytes`, or as many as there are; they are still to be read.
  ByteView peek(std::size_t bytes);

  // All that is left.
  Bytes read_rest();

 private:
  InputStream(const std::string& path, int descriptor);
  std::size_t read_descriptor(std::span<std::byte> out);

  std::string path_;
  int descriptor_;
  std::optional<std::uint64_t> left_;  // of the descriptor
  Bytes peeked_;
};

}  // namespace tersewire::apps
