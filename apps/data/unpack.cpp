#include "apps/data/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "apps/data/part_file.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
// What is skipped costs time: an archive of the web may be made to take for ever.
constexpr int kMaxEntries = 1000;

class TarReader {
 public:
  explicit TarReader(std::string path) : path_(std::move(path)) {
    check(archive_read_support_format_tar(archive_.get()));
    check(archive_read_support_filter_gzip(archive_.get()));
    check(archive_read_open_filename(archive_.get(), path_.c_str(), kReadBytes));
  }

  // The next entry, or null at the end.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    if (result == ARCHIVE_EOF) return nullptr;
    check(result);
    return entry;
  }

  // Some of the current entry's bytes; none at its end.
  ByteView read() {
    const la_ssize_t got = archive_read_data(archive_.get(), buffer_.data(), buffer_.size());
    if (got < 0) check(ARCHIVE_FATAL);
    return std::span(buffer_).first(static_cast<std::size_t>(got));
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{} cannot be unpacked: {}; remove it and fetch it again", path_, why));
  }

 private:
  void check(int result) const {
    if (result >= ARCHIVE_WARN) return;
    const char* why = archive_error_string(archive_.get());
    refuse(why != nullptr ? why : "it is damaged");
  }

  std::string path_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
  std::unique_ptr<archive, int (*)(archive*)> archive_{archive_read_new(), archive_read_free};
};

// Of a link, a directory or a device there is nothing to copy.
void copy(TarReader& tar, const ArchiveMember& member, PartFile& part) {
  part.clear();
  for (ByteView bytes = tar.read(); !bytes.empty(); bytes = tar.read()) part.append(bytes);
  if (part.bytes() != member.bytes) {
    tar.refuse(fmt::format("{} does not have {} bytes in it", member.path, member.bytes));
  }
}

using Parts = std::map<std::string, PartFile>;  // by their members' paths

void take_members(TarReader& tar, const std::vector<ArchiveMember>& members,
                  const std::filesystem::path& directory, Parts& parts) {
  const std::uint64_t largest = std::ranges::max(members, {}, &ArchiveMember::bytes).bytes;
  int entries = 0;
  while (archive_entry* entry = tar.next()) {
    if (++entries > kMaxEntries || std::cmp_greater(archive_entry_size(entry), largest)) {
      tar.refuse("it holds more than it should");
    }
    // Null where the name is not of this locale's characters.
    const char* path = archive_entry_pathname(entry);
    const auto member = std::ranges::find(members, std::string_view(path != nullptr ? path : ""),
                                          &ArchiveMember::path);
    if (member == members.end()) continue;
    const auto [part, is_new] =
        parts.try_emplace(member->path, (directory / member->name).string());
    if (!is_new) tar.refuse(member->path + " is in it twice");
    copy(tar, *member, part->second);
  }
  for (const ArchiveMember& member : members) {
    if (!parts.contains(member.path)) tar.refuse(member.path + " is not in it");
  }
}

}  // namespace

void unpack(const std::string& archive, const std::vector<ArchiveMember>& members,
            const std::string& directory) {
  TarReader tar(archive);
  Parts parts;
  try {
    take_members(tar, members, directory, parts);
    for (auto& [path, part] : parts) part.publish();
  } catch (...) {
    for (auto& [path, part] : parts) part.remove();
    throw;
  }
}

}  // namespace tersewire::apps
