#include "apps/data/data_get.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/data/sha256.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

bool is_occupied(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_file(path.string(), "read", error.value());
  }
  return there;
}

// Links are followed: data may lie elsewhere.
bool is_file_of(const fs::path& path, std::uint64_t bytes) {
  std::error_code none;
  return fs::is_regular_file(path, none) && fs::file_size(path, none) == bytes;
}

// A directory that is made where there is none, and goes again where nothing came into it.
class DataDirectory {
 public:
  explicit DataDirectory(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    is_new_ = fs::create_directories(path_, error);
    if (error) fail_file(path_.string(), "written", error.value());
  }
  ~DataDirectory() {
    std::error_code not_empty;
    if (is_new_) fs::remove(path_, not_empty);
  }
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

 private:
  fs::path path_;
  bool is_new_ = false;
};

// Whether a downloaded file is there. Throws where another is in its place.
bool is_there(const DataFile& file, const fs::path& path) {
  if (!is_occupied(path)) return false;
  if (is_file_of(path, file.bytes) && file_sha256(path.string()) == file.sha256) return true;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} exists but is not the expected file of {} bytes with SHA-256 {}; "
                          "move it away or name another directory with --to",
                          path.string(), file.bytes, file.sha256));
}

// Whether the members of an archive are there. Throws where only some are, or other files.
bool are_there(const DataSet& set, const fs::path& directory) {
  const auto is_taken = [&](const ArchiveMember& member) {
    return is_occupied(directory / member.name);
  };
  if (std::ranges::none_of(set.members, is_taken)) return false;
  for (const ArchiveMember& member : set.members) {
    if (is_file_of(directory / member.name, member.bytes)) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds files of {}, but no {} of {} bytes; move them away or name "
                            "another directory with --to",
                            directory.string(), set.name, member.name, member.bytes));
  }
  return true;
}

void download_files(const DataSet& set, const fs::path& directory, const DataSetReport& report,
                    long stall_seconds) {
  std::uint64_t before = 0;
  for (const DataFile& file : set.files) {
    const fs::path path = directory / file.name;
    if (is_there(file, path)) {
      report.on_kept(path.string());
    } else {
      download(
          {.url = set.url + "/" + file.name, .bytes = file.bytes, .sha256 = file.sha256},
          path.string(),
          [&](std::uint64_t bytes) { report.on_progress(before + bytes, file.name); },
          stall_seconds);
    }
    before += file.bytes;
  }
}

}  // namespace

void get_data_set(const DataSet& set, const std::string& directory, const DataSetReport& report,
                  long stall_seconds) {
  const DataDirectory made(directory);
  const bool is_archive = !set.members.empty();
  if (is_archive && are_there(set, directory)) {
    for (const ArchiveMember& member : set.members) {
      report.on_kept((fs::path(directory) / member.name).string());
    }
    return;
  }
  download_files(set, directory, report, stall_seconds);
  if (!is_archive) return;
  const fs::path archive = fs::path(directory) / set.files.front().name;
  unpack(archive.string(), set.members, directory);
  std::error_code none;  // an archive that stays is in nobody's way
  fs::remove(archive, none);
}

}  // namespace tersewire::apps
