// What encode and decode share: which files they read, and which they write of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tersewire::apps {

struct FilePair {
  std::string input;
  std::string output;
};

// IN OUT, or --out-dir DIR and any number of INs; - is standard input or output.
class FilePairs {
 public:
  // Registers the arguments with `command`. Extensions are those of the files read and written.
  FilePairs(CLI::App& command, std::string in_extension, std::string out_extension);

  // Makes the output directory. Throws WrongUsage where files are missing, there are too many or
  // two are one, and kFailedPrecondition for an output that exists, unless --force says so.
  [[nodiscard]] std::vector<FilePair> pairs() const;

 private:
  [[nodiscard]] std::vector<FilePair> named() const;

  std::string in_extension_;
  std::string out_extension_;
  std::vector<std::string> files_;
  std::string out_dir_;
  bool force_ = false;
};

}  // namespace tersewire::apps
