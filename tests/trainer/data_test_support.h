// What the tests of data sets share: files to read, and errors to expect.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "expect_error.h"
#include "tersewire/error.h"
#include "trainer/data/image_samples.h"
#include "trainer/data/samples.h"

namespace tersewire::trainer {

using ByteVector = std::vector<std::uint8_t>;
using Labels = std::vector<std::uint16_t>;

inline ByteVector counting(std::size_t count) {
  ByteVector bytes(count);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

// The images behind samples.
inline const Dataset& images_of(const std::shared_ptr<const Samples>& samples) {
  return dynamic_cast<const ImageSamples&>(*samples).images();
}

// Data that the project does not hold, where CONTRIBUTING.md says that tests look for it.
inline std::filesystem::path shared_data() {
  const char* given = std::getenv("TERSEWIRE_DATA");
  if (given != nullptr) return given;
  return std::filesystem::path(TERSEWIRE_SOURCE_DIR) / "../shared/data";
}

// A directory of its own for each test.
class DataFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("tersewire_data_" + std::to_string(::getpid()) + "_" + info->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& name, const ByteVector& bytes) {
    const std::filesystem::path path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(out.good());
    return path.string();
  }

  void expect_load_error(ErrorCode code, const std::string& part) {
    expect_error(code, part, [&] { load_data(dir_.string(), 1); });
  }

  std::filesystem::path dir_;
};

}  // namespace tersewire::trainer
