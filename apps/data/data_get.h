// Data sets of the web: what they consist of, and fetching them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/data/download.h"
#include "apps/data/unpack.h"

namespace tersewire::apps {

struct DataFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;  // as in RemoteFile
};

struct DataSet {
  std::string name;
  std::string url;              // what the files' names are appended to, after a slash
  std::vector<DataFile> files;  // what is downloaded
  // What is taken out of the one file, an archive; none where files stay as they come.
  std::vector<ArchiveMember> members;
  std::string train = {};  // options with which 'tersewire train --data DIRECTORY' learns from it

  // Of all that is downloaded.
  [[nodiscard]] std::uint64_t bytes() const;
};

// mnist, cifar10 and tinyshakespeare.
const std::vector<DataSet>& known_data_sets();

// What get_data_set() tells while it works, in its thread. Neither may throw.
struct DataSetReport {
  // A file is there already.
  std::function<void(const std::string& path)> on_kept;
  // So many of DataSet::bytes() are there, and now `file` comes.
  std::function<void(std::uint64_t bytes, const std::string& file)> on_progress;
};

// Puts a data set into `directory`, which is made where it does not exist. What is there already
// and complete is kept: downloaded files where their SHA-256 is right; where an archive was
// unpacked, its members where they are all there, each of its size. What is there and differs is
// never replaced: it throws kFailedPrecondition. Everything else is as download() and unpack() say.
void get_data_set(const DataSet& set, const std::string& directory, const DataSetReport& report,
                  long stall_seconds = kStallSeconds);

}  // namespace tersewire::apps
