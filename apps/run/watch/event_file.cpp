#include "apps/run/watch/event_file.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <system_error>

#include "apps/cli/failures.h"
#include "apps/run/run_files.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they lie in memory");

// CRC-32C, masked so that the checksum of data that holds checksums is a good one, too.
std::uint32_t masked_crc(std::string_view bytes) {
  constexpr std::uint32_t kAllOnes = 0xFFFFFFFF;
  constexpr std::uint32_t kMask = 0xA282EAD8;
  // The library does not write through the pointer.
  auto* first = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  const std::uint32_t crc = ~crc32_iscsi(first, static_cast<int>(bytes.size()), kAllOnes);
  return std::rotr(crc, 15) + kMask;
}

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "localhost";
  return name.data();
}

// Readers go through the files of a directory in the order of their names, so time comes first.
std::string new_path(const fs::path& directory) {
  const std::string name = fmt::format("{}{:010}.{}.{}", kTensorboardPrefix, std::time(nullptr),
                                       host_name(), ::getpid());
  std::error_code error;
  for (int i = 0;; ++i) {
    const fs::path path = directory / fmt::format("{}.{}", name, i);
    if (!fs::exists(path, error)) return path.string();
  }
}

}  // namespace

EventFile::EventFile(const fs::path& directory) {
  std::error_code error;
  if (!fs::create_directories(directory, error) && error) {
    fail_file(directory.string(), "made", error.value());
  }
  path_ = new_path(directory);
  file_.open(path_, std::ios::binary);
  if (!file_) fail_file(path_, "written", errno);
}

void EventFile::add(std::string_view record) {
  const std::string length = bytes_of(std::uint64_t{record.size()});
  file_ << length << bytes_of(masked_crc(length)) << record << bytes_of(masked_crc(record))
        << std::flush;
  if (!file_) fail_file(path_, "written", errno);
}

}  // namespace tersewire::apps
