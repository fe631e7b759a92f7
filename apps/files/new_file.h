// A file that appears under its name complete or not at all.
#pragma once

#include <string>
#include <string_view>

#include "tersewire/bytes.h"

namespace tersewire::apps {

// A file that appears under its name complete or not at all: written next to it, where the file
// system can without a name so that nothing is left of it if the program is killed, then renamed.
// What is no regular file (a pipe, a device) is written directly. Every function throws an Error
// that names the file.
//
// For - it is standard output, written directly. Of a link the target is written, whether it is
// there yet or not.
class NewFile {
 public:
  explicit NewFile(std::string path);
  // Removes what was not published.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(ByteView bytes);
  // Brings what was written to the disk: what can fail for lack of room has failed after this.
  void finish();
  // Puts the finished file in its place, over what was there.
  void publish();

 private:
  void open_standard_output();
  void open_temporary();
  // Gives the file a name next to its own that no other has, by `make`, which fails with EEXIST
  // where one has it.
  template <typename Make>
  void name_temporary(const Make& make);

  std::string path_;       // as the user named it
  std::string target_;     // with symbolic links followed
  std::string temporary_;  // its name until then; empty where it has none (yet, or any more)
  bool replaces_ = true;   // false where it is written directly
  unsigned mode_ = 0666;
  int descriptor_ = -1;
};

// Whether a NewFile has this name until it is published. One of a process that was killed stays.
bool is_temporary_file(std::string_view name);

// The whole of a NewFile.
void write_new_file(const std::string& path, ByteView bytes);

}  // namespace tersewire::apps
