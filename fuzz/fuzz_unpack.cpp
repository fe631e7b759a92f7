// Arbitrary bytes as an archive that was downloaded.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "apps/data/unpack.h"
#include "fuzz_support.h"

namespace {

namespace fs = std::filesystem;

// A directory of this process, in memory where there is one; emptied for every input.
fs::path fresh_directory() {
  const fs::path memory = "/dev/shm";
  const fs::path base = fs::exists(memory) ? memory : fs::temp_directory_path();
  const fs::path path = base / ("tersewire-fuzz-unpack-" + std::to_string(getpid()));
  fs::remove_all(path);
  fs::create_directory(path);
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  const fs::path directory = fresh_directory();
  const std::string archive = directory / "archive";
  std::ofstream(archive, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const std::vector<apps::ArchiveMember> members{{"set/a", "a", 3}, {"set/b", "b", 0}};
  const bool unpacked = succeeds([&] { apps::unpack(archive, members, directory.string()); });
  const auto files = std::distance(fs::directory_iterator(directory), fs::directory_iterator());
  require(files == (unpacked ? 3 : 1), "all members are there and nothing else, or nothing is");
  for (const apps::ArchiveMember& member : members) {
    require(!unpacked || fs::file_size(directory / member.name) == member.bytes,
            "a member has the size that it must have");
  }
  fs::remove_all(directory);
  return 0;
}
