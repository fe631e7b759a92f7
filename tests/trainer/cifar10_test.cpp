// CIFAR-10's binary version: what is read, and what is refused.
#include "trainer/data/cifar10.h"

#include <algorithm>
#include <utility>

#include "data_test_support.h"

namespace tersewire::trainer {
namespace {

// A record whose planes are of one colour each.
ByteVector record(std::uint8_t label, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  ByteVector bytes(kCifar10RecordBytes, blue);
  bytes[0] = label;
  std::fill_n(bytes.begin() + 1, 1024, red);
  std::fill_n(bytes.begin() + 1025, 1024, green);
  return bytes;
}

ByteVector operator+(ByteVector a, const ByteVector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Cifar10Files : public DataFiles {
 protected:
  // Seven images for training, one for the test.
  void write_good_set() {
    for (std::uint8_t i = 1; i <= 5; ++i) {
      write("data_batch_" + std::to_string(i) + ".bin", record(i, i, 0, 255));
    }
    write("data_batch_3.bin", record(3, 3, 0, 255) + record(9, 31, 32, 33) + record(0, 1, 2, 3));
    write("test_batch.bin", record(8, 51, 102, 153));
  }
};

TEST_F(Cifar10Files, DirectoryLoads) {
  write_good_set();
  const DataSplits splits = load_data(dir_.string(), 1);
  EXPECT_EQ(splits.name, dir_.string());
  EXPECT_EQ(splits.train->kind(), (SampleKind{{3, 32, 32}, 10, false}));
  EXPECT_EQ(splits.test->kind(), splits.train->kind());
  EXPECT_EQ(images_of(splits.train).labels, (Labels{1, 2, 3, 9, 0, 4, 5}));
  EXPECT_EQ(images_of(splits.test).labels, (Labels{8}));
  const ByteVector& pixels = images_of(splits.train).pixels;
  ASSERT_EQ(pixels.size(), 7U * 3072);
  for (const auto& [at, pixel] : {std::pair{0U, 1},
                                  {1024U, 0},
                                  {2048U, 255},
                                  {3U * 3072, 31},
                                  {3U * 3072 + 1023, 31},
                                  {3U * 3072 + 1024, 32},
                                  {3U * 3072 + 3071, 33},
                                  {7U * 3072 - 1, 255}}) {
    EXPECT_EQ(pixels[at], pixel) << at;
  }
}

TEST_F(Cifar10Files, ChannelsAreNormalizedEachByItsOwn) {
  write_good_set();
  const DataSplits splits = load_data(dir_.string(), 1);
  BatchMaker batches(*splits.test, 1, 0);
  const std::vector<std::uint32_t> indices = {0};
  const Batch& batch = batches.make(indices, 0);
  EXPECT_EQ(batch.shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(batch.labels[0], 8);
  EXPECT_EQ(batch.values[0], (0.2F - 0.4914F) / 0.2470F);
  EXPECT_EQ(batch.values[1024], (0.4F - 0.4822F) / 0.2435F);
  EXPECT_EQ(batch.values[3071], (0.6F - 0.4465F) / 0.2616F);
}

TEST_F(Cifar10Files, EveryMissingFileIsNamed) {
  for (const std::string name : kCifar10Files) {
    write_good_set();
    std::filesystem::remove(dir_ / name);
    expect_load_error(ErrorCode::kNotFound, name + " is missing");
  }
}

TEST_F(Cifar10Files, EmptyAndCutOffFilesAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kCifar10RecordBytes - 1,
                                  kCifar10RecordBytes + 1, 2 * kCifar10RecordBytes - 1}) {
    write_good_set();
    write("data_batch_2.bin", ByteVector(bytes, 1));
    expect_load_error(ErrorCode::kDataLoss,
                      "data_batch_2.bin: it has " + std::to_string(bytes) + " bytes");
  }
}

TEST_F(Cifar10Files, HugeFileIsRefusedBeforeItIsRead) {
  write_good_set();
  std::filesystem::resize_file(dir_ / "test_batch.bin", kMaxCifar10FileBytes + 1);
  expect_load_error(ErrorCode::kDataLoss, "test_batch.bin: it has 268435457 bytes");
}

TEST_F(Cifar10Files, LabelOutOfRangeIsRefused) {
  write_good_set();
  write("data_batch_5.bin", record(9, 0, 0, 0) + record(10, 0, 0, 0));
  expect_load_error(ErrorCode::kDataLoss, "data_batch_5.bin: label 1 is 10");
}

TEST_F(Cifar10Files, ChecksumDependsOnEveryByte) {
  write_good_set();
  const std::uint64_t whole = load_data(dir_.string(), 1).train->checksum();
  EXPECT_EQ(load_data(dir_.string(), 2).train->checksum(), whole);
  write("data_batch_5.bin", record(5, 5, 0, 254));
  EXPECT_NE(load_data(dir_.string(), 1).train->checksum(), whole);
  write("data_batch_5.bin", record(6, 5, 0, 255));
  EXPECT_NE(load_data(dir_.string(), 1).train->checksum(), whole);
}

// All 60,000 images, where the binary version was made from the shared data.
TEST(Cifar10, RealSetIsBalancedAndNearItsNormalization) {
  const auto directory = shared_data() / "cifar10";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no " << directory;
  const DataSplits splits = load_data(directory.string(), 1);
  EXPECT_EQ(splits.train->size(), 50000U);
  EXPECT_EQ(splits.test->size(), 10000U);
  std::vector<int> counts(10);
  for (const std::uint16_t label : images_of(splits.train).labels) ++counts[label];
  EXPECT_EQ(counts, std::vector<int>(10, 5000));
  BatchMaker batches(*splits.train, 1, 0);
  std::vector<std::uint32_t> indices(5000);
  std::iota(indices.begin(), indices.end(), 0U);
  const Batch& batch = batches.make(indices, 0);
  double sum = 0;
  double squares = 0;
  const std::size_t count = indices.size() * 3072;
  for (std::size_t i = 0; i < count; ++i) {
    sum += batch.values[i];
    squares += batch.values[i] * batch.values[i];
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0, 0.02);
  EXPECT_NEAR(squares / static_cast<double>(count), 1, 0.03);
}

}  // namespace
}  // namespace tersewire::trainer
