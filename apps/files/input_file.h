// A file that is read in pieces, wherever they lie.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tersewire::apps {

// Open for reading. Threads may share one.
class InputFile {
 public:
  // Throws an Error that names the file and says why, and kInvalidArgument for what is no regular
  // file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // When it was opened, in bytes.
  [[nodiscard]] std::size_t size() const { return size_; }

  // The bytes from `begin` on. Throws kDataLoss where the file ends before they do.
  void read(std::size_t begin, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  int descriptor_;
  std::size_t size_ = 0;
};

}  // namespace tersewire::apps
