// Takes files out of a tar archive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tersewire::apps {

// A file that an archive must hold.
struct ArchiveMember {
  std::string path;  // inside the archive
  std::string name;  // what it is called outside: no directory in it
  std::uint64_t bytes = 0;
};

// Takes `members`, and nothing else, out of a tar archive, gzipped or not, and puts them into
// `directory`, over what is there. Links are not followed, no path of the archive's is ever
// written to, and no member gets its name before all of them are complete.
// Throws kDataLoss where a member is missing, there twice or of another size (a link has none),
// where the archive is damaged, and where it holds what is far larger than the members; and an
// Error that names the file where one cannot be read or written. Nothing is left behind then.
// Cost: one pass; memory for a megabyte.
void unpack(const std::string& archive, const std::vector<ArchiveMember>& members,
            const std::string& directory);

}  // namespace tersewire::apps
