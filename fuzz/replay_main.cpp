// Runs a fuzz target over stored inputs, without a fuzzer: every file given, and every file of
// every directory given.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

namespace fs = std::filesystem;

// Sorted, so that every run is alike; false where a path does not exist.
bool collect(const fs::path& path, std::vector<fs::path>& files) {
  if (!fs::exists(path)) return false;
  if (!fs::is_directory(path)) {
    files.push_back(path);
    return true;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return true;
}

bool replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) return false;
  // Named first: an input that ends the process has said which it was.
  std::printf("%s: %zu bytes\n", path.c_str(), chars.size());
  std::fflush(stdout);
  const std::vector<std::uint8_t> bytes(chars.begin(), chars.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!collect(argv[i], files)) {
      std::fprintf(stderr, "%s does not exist\n", argv[i]);
      return 1;
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "no inputs; give files or directories that hold some\n");
    return 1;
  }
  for (const fs::path& path : files) {
    if (!replay(path)) {
      std::fprintf(stderr, "%s cannot be read\n", path.c_str());
      return 1;
    }
  }
  std::printf("%zu inputs passed\n", files.size());
  return 0;
}
