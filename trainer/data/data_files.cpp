#include "trainer/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

bool is_left_behind(const std::string& name) {
  return name.starts_with('.') || name == "__MACOSX" || name == "@eaDir" || name == "lost+found";
}

}  // namespace

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::vector<std::string> entries_in(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (!is_left_behind(entries->path().filename().string())) paths.push_back(entries->path());
  }
  if (error) {
    throw Error(ErrorCode::kNotFound,
                directory + " cannot be listed: check that it is there and that you may read it");
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<std::string> directories_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string& path : entries_in(directory)) {
    if (is_directory(path)) names.push_back(std::filesystem::path(path).filename());
  }
  return names;
}

std::string path_in(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

std::vector<std::uint8_t> read_file(const std::string& path, std::uint64_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    throw Error(ErrorCode::kNotFound,
                path + " cannot be opened: check that it exists and that you may read it");
  }
  if (size > max_bytes) {
    refuse_file(path, "it has " + std::to_string(size) +
                          " bytes, but a file of its kind has at most " +
                          std::to_string(max_bytes) + "; give a smaller one");
  }
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) refuse_file(path, "it cannot be read to its end; check the disk, or fetch it again");
  return bytes;
}

void refuse_file(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, path + ": " + what);
}

}  // namespace tersewire::trainer
