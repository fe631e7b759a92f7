// A file that is not complete yet: NAME.part, beside the name that it gets in the end.
#pragma once

#include <cstdint>
#include <string>

#include "tersewire/bytes.h"

namespace tersewire::apps {

// TARGET.part. What was written stays when the program ends, however it ends, and the next PartFile
// of the same target goes on with it; an empty one is removed. One thread, and one process at a
// time. Every function throws an Error that names the file.
class PartFile {
 public:
  // Opens TARGET.part with what it holds, or makes it. Throws where another process writes to it,
  // and where it is no regular file.
  explicit PartFile(std::string target);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  void append(ByteView bytes);
  // Throws away what it holds.
  void clear();
  // Brings it to the disk and gives it its target's name, over what was there. Nothing follows.
  void publish();
  // Removes it. Nothing follows.
  void remove() noexcept;

 private:
  std::string target_;
  std::string path_;
  std::uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace tersewire::apps
