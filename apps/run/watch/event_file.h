// A file of records as TensorFlow frames them (TFRecord), under the name that TensorBoard looks
// for.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tersewire::apps {

// Every function throws an Error that names the file where it cannot be written. One thread at a
// time.
class EventFile {
 public:
  // A new file in `directory`, which is made where it does not exist.
  explicit EventFile(const std::filesystem::path& directory);

  // A reader sees the record once this returns.
  void add(std::string_view record);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace tersewire::apps
