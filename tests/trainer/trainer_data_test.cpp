// The trainer's data: IDX files, the embedded digits, shards and batches.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "data_test_support.h"
#include "trainer/data/dataset.h"
#include "trainer/data/idx_file.h"
#include "trainer/data/stroke_digits.h"

namespace tersewire::trainer {
namespace {

void append_u32(ByteVector& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

ByteVector idx(const std::vector<std::uint32_t>& dims, const ByteVector& payload) {
  ByteVector bytes = {0, 0, 8, static_cast<std::uint8_t>(dims.size())};
  for (const std::uint32_t dim : dims) append_u32(bytes, dim);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

IdxArray parse(const ByteVector& bytes) { return parse_idx(std::as_bytes(std::span(bytes))); }

void expect_refused(const ByteVector& bytes, const std::string& part) {
  expect_error(ErrorCode::kDataLoss, part, [&] { parse(bytes); });
}

ByteVector gzipped(const ByteVector& bytes, const std::filesystem::path& scratch) {
  gzFile file = gzopen(scratch.c_str(), "wb");
  EXPECT_NE(file, nullptr);
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  std::ifstream in(scratch, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::uint64_t fnv1a(const Dataset& data) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3U; };
  std::ranges::for_each(data.pixels, add);
  std::ranges::for_each(data.labels, add);
  return hash;
}

class MnistFiles : public DataFiles {
 protected:
  std::string write_gz(const std::string& name, const ByteVector& bytes) {
    return write(name, gzipped(bytes, dir_ / "scratch"));
  }

  // Three images of 2 x 3 for training, two for the test.
  void write_good_set() {
    write("train-images-idx3-ubyte", idx({3, 2, 3}, counting(18)));
    write("train-labels-idx1-ubyte", idx({3}, {9, 0, 4}));
    write_gz("t10k-images-idx3-ubyte.gz", idx({2, 2, 3}, counting(12)));
    write_gz("t10k-labels-idx1-ubyte.gz", idx({2}, {1, 2}));
  }
};

TEST(ParseIdx, ReadsDimensionsAndBytes) {
  const ByteVector literal = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 255};
  const IdxArray array = parse(literal);
  EXPECT_EQ(array.dims, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(array.bytes, (ByteVector{10, 11, 12, 13, 14, 255}));
}

TEST(ParseIdx, ReadsMoreThanOneChunk) {
  const ByteVector payload = counting(3 * 65536 + 1);
  EXPECT_EQ(parse(idx({3 * 65536 + 1}, payload)).bytes, payload);
  EXPECT_EQ(parse(idx({1, 2, 1, 65536}, counting(131072))).bytes, counting(131072));
}

TEST(ParseIdx, RefusesEveryTruncation) {
  const ByteVector whole = idx({2, 2, 2}, counting(8));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const ByteVector cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    expect_refused(cut, length < 16 ? "the header ends early" : "the data ends after");
  }
}

TEST(ParseIdx, RefusesBadHeaders) {
  expect_refused({1, 0, 8, 1, 0, 0, 0, 1, 7}, "starts with two zero bytes");
  expect_refused({0, 1, 8, 1, 0, 0, 0, 1, 7}, "starts with two zero bytes");
  expect_refused({0, 0, 0x0D, 1, 0, 0, 0, 1, 7}, "element type 13");
  expect_refused({0, 0, 8, 0}, "0 dimensions");
  expect_refused(idx({1, 1, 1, 1, 1}, {7}), "5 dimensions");
  expect_refused(idx({3, 0}, {}), "offset 8: a dimension is 0");
}

TEST(ParseIdx, RefusesSizesThatOverflowOrLie) {
  expect_refused(idx({0xFFFFFFFF}, {1}), "claims more than");
  // 2^16 four times is 2^64, which is 0 in 64 bits.
  expect_refused(idx({65536, 65536, 65536, 65536}, {1}), "offset 8: the header claims more than");
  expect_refused(idx({(1U << 30) + 1}, {1}), "claims more than");
}

TEST(ParseIdx, RefusesBytesThatAreLeftOver) {
  expect_refused(idx({2}, {1, 2, 3}), "offset 10: bytes follow");
}

TEST(ParseIdx, AllocatesForDataAndNotForClaims) {
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kib();
  expect_refused(idx({1U << 30}, {1, 2, 3}), "the data ends after 3 of the 1073741824 bytes");
  EXPECT_LT(peak_kib() - before, 64 * 1024);
}

TEST_F(MnistFiles, PlainAndGzippedFilesReadTheSame) {
  const ByteVector bytes = idx({300, 28, 28}, counting(300 * 784));
  const IdxArray plain = read_idx_file(write("plain", bytes));
  const IdxArray zipped = read_idx_file(write_gz("zipped.gz", bytes));
  EXPECT_EQ(plain.dims, (std::vector<std::uint32_t>{300, 28, 28}));
  EXPECT_EQ(plain.bytes, counting(300 * 784));
  EXPECT_EQ(zipped.dims, plain.dims);
  EXPECT_EQ(zipped.bytes, plain.bytes);
}

TEST_F(MnistFiles, MissingFileIsNamed) {
  const std::string path = (dir_ / "nothing").string();
  expect_error(ErrorCode::kNotFound, path + " cannot be opened", [&] { read_idx_file(path); });
}

TEST_F(MnistFiles, DirectoryInPlaceOfAFileIsRefused) {
  expect_error(ErrorCode::kDataLoss, "cannot be read", [&] { read_idx_file(dir_.string()); });
}

TEST_F(MnistFiles, EveryTruncatedGzipIsRefused) {
  const ByteVector whole = gzipped(idx({4, 4}, counting(16)), dir_ / "scratch");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const ByteVector cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const std::string path = write("cut.gz", cut);
    expect_error(ErrorCode::kDataLoss, path, [&] { read_idx_file(path); });
  }
}

TEST_F(MnistFiles, DamagedGzipIsRefused) {
  ByteVector bytes = gzipped(idx({4, 4}, counting(16)), dir_ / "scratch");
  bytes[bytes.size() - 8] ^= 1;  // the checksum
  const std::string path = write("damaged.gz", bytes);
  expect_error(ErrorCode::kDataLoss, "cannot be read", [&] { read_idx_file(path); });
}

TEST_F(MnistFiles, LeftOverBytesInAGzipAreRefused) {
  const std::string path = write_gz("long.gz", idx({2}, {1, 2, 3}));
  expect_error(ErrorCode::kDataLoss, path + ", offset 10: bytes follow",
               [&] { read_idx_file(path); });
}

TEST_F(MnistFiles, DirectoryLoads) {
  write_good_set();
  const DataSplits splits = load_data(dir_.string(), 1);
  EXPECT_EQ(splits.name, dir_.string());
  EXPECT_EQ(splits.train->size(), 3U);
  EXPECT_EQ(images_of(splits.train).classes, 10);
  EXPECT_EQ(images_of(splits.train).height, 2);
  EXPECT_EQ(images_of(splits.train).width, 3);
  EXPECT_EQ(images_of(splits.train).image_bytes(), 6U);
  EXPECT_EQ(images_of(splits.train).pixels, counting(18));
  EXPECT_EQ(images_of(splits.train).labels, (Labels{9, 0, 4}));
  EXPECT_EQ(images_of(splits.test).pixels, counting(12));
  EXPECT_EQ(images_of(splits.test).labels, (Labels{1, 2}));
}

TEST_F(MnistFiles, PlainFileIsPreferred) {
  write_good_set();
  write("t10k-labels-idx1-ubyte", idx({2}, {7, 8}));
  EXPECT_EQ(images_of(load_data(dir_.string(), 1).test).labels, (Labels{7, 8}));
}

TEST_F(MnistFiles, DirectoryWithoutDataSaysWhatIsExpected) {
  for (const char* part : {"holds no known data set", "train-images-idx3-ubyte", "data_batch_1.bin",
                           "--data embedded"}) {
    expect_load_error(ErrorCode::kNotFound, part);
  }
  expect_error(ErrorCode::kNotFound, "--data embedded",
               [&] { load_data((dir_ / "nowhere").string(), 1); });
}

TEST_F(MnistFiles, ADirectoryWithATextIsThatText) {
  std::ofstream(dir_ / "input.txt") << std::string(1000, 'a') + "b";
  const auto checksum_of = [](const std::filesystem::path& source) {
    return load_data(source.string(), 1).train->checksum();
  };
  EXPECT_EQ(checksum_of(dir_), checksum_of(dir_ / "input.txt"));
}

TEST_F(MnistFiles, OneMissingFileIsNamed) {
  write_good_set();
  std::filesystem::remove(dir_ / "t10k-labels-idx1-ubyte.gz");
  expect_load_error(ErrorCode::kNotFound, "t10k-labels-idx1-ubyte is missing");
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    expect_load_error(ErrorCode::kNotFound, name);
  }
}

TEST_F(MnistFiles, ValuesAreNormalized) {
  write_good_set();
  write("train-images-idx3-ubyte", idx({3, 1, 2}, {0, 255, 0, 0, 51, 102}));
  write("t10k-images-idx3-ubyte", idx({2, 1, 2}, {0, 0, 0, 0}));
  const DataSplits splits = load_data(dir_.string(), 1);
  BatchMaker batches(*splits.train, 1, 0);
  const std::vector<std::uint32_t> indices = {2, 0};
  const Batch& batch = batches.make(indices, 0);
  EXPECT_EQ(batch.shape, (std::vector<std::int64_t>{1, 1, 2}));
  EXPECT_EQ(std::vector<float>(batch.values, batch.values + 4),
            (std::vector<float>{(0.2F - 0.1307F) / 0.3081F, (0.4F - 0.1307F) / 0.3081F,
                                -0.1307F / 0.3081F, (1 - 0.1307F) / 0.3081F}));
  EXPECT_EQ(batch.labels[0], 4);
  EXPECT_EQ(batch.labels[1], 9);
}

TEST_F(MnistFiles, LabelOutOfRangeIsRefused) {
  write_good_set();
  write("train-labels-idx1-ubyte", idx({3}, {9, 10, 4}));
  expect_load_error(ErrorCode::kDataLoss, "label 1 is 10");
}

TEST_F(MnistFiles, CountsThatDifferAreRefused) {
  write_good_set();
  write("train-labels-idx1-ubyte", idx({2}, {9, 0}));
  expect_load_error(ErrorCode::kDataLoss, "2 labels do not fit the 3 images");
}

TEST_F(MnistFiles, MixedUpFilesAreRefused) {
  write_good_set();
  write("train-images-idx3-ubyte", idx({3}, {9, 0, 4}));
  expect_load_error(ErrorCode::kDataLoss, "images have 3 dimensions, but this file has 1");
  write_good_set();
  write("train-labels-idx1-ubyte", idx({3, 2, 3}, counting(18)));
  expect_load_error(ErrorCode::kDataLoss, "labels have 1 dimensions, but this file has 3");
}

TEST_F(MnistFiles, SizesThatDifferBetweenTrainAndTestAreRefused) {
  write_good_set();
  write("t10k-images-idx3-ubyte", idx({2, 3, 3}, counting(18)));
  expect_load_error(ErrorCode::kDataLoss, "differ in size");
}

TEST_F(MnistFiles, HugeSidesAreRefused) {
  write_good_set();
  write("train-images-idx3-ubyte", idx({1, 1, 4097}, counting(4097)));
  expect_load_error(ErrorCode::kDataLoss, "more than 4096 pixels a side");
}

// From an independent implementation of the formula.
TEST(CounterRandomTest, DrawsAreKnown) {
  CounterRandom random(1, 2, 3);
  EXPECT_EQ(random.bits(), 0x5CE8BD6EDA014EEEU);
  EXPECT_EQ(random.bits(), 0x45D92CC02DE79274U);
  EXPECT_EQ(random.bits(), 0x1053BD15F1FA5215U);
}

TEST(CounterRandomTest, EveryArgumentMatters) {
  const std::set<std::uint64_t> values = {
      CounterRandom(0, 0, 0).bits(), CounterRandom(1, 0, 0).bits(), CounterRandom(0, 1, 0).bits(),
      CounterRandom(0, 0, 1).bits()};
  EXPECT_EQ(values.size(), 4U);
}

TEST(CounterRandomTest, RangesHold) {
  CounterRandom random(3, 1, 4);
  std::array<int, 7> counts{};
  for (int i = 0; i < 7000; ++i) {
    const float value = random.uniform();
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    ++counts.at(random.below(7));
  }
  // Five standard deviations of a binomial: sqrt(7000 * 1/7 * 6/7) is 29.
  for (const int count : counts) EXPECT_NEAR(count, 1000, 146);
}

TEST(StrokeDigits, FirstImagesAreKnown) {
  const Dataset data = generate_stroke_digits(1, 0, 16);
  EXPECT_EQ(data.height, 28);
  EXPECT_EQ(data.width, 28);
  EXPECT_EQ(data.classes, 10);
  EXPECT_EQ(data.labels, (Labels{7, 9, 6, 8, 3, 0, 2, 4, 1, 5, 3, 9, 8, 0, 7, 5}));
  EXPECT_EQ(fnv1a(data), 0xDE562B3021D86129U);
}

// More images than above: one rounding in a hundred thousand that differs must show. Where they are
// to change, kStrokeDigitDrawing does too.
TEST(StrokeDigits, WholeSetIsKnown) {
  const Dataset data = generate_stroke_digits(1, 0, 24000);
  EXPECT_EQ(fnv1a(data), 0x1EBA61B88BDF5920U);
}

TEST(StrokeDigits, ImageDependsOnSeedAndIndexAlone) {
  const Dataset whole = generate_stroke_digits(5, 90, 40);
  const Dataset part = generate_stroke_digits(5, 103, 7);
  EXPECT_TRUE(std::equal(part.pixels.begin(), part.pixels.end(), whole.pixels.begin() + 13 * 784));
  EXPECT_TRUE(std::equal(part.labels.begin(), part.labels.end(), whole.labels.begin() + 13));
  EXPECT_NE(generate_stroke_digits(6, 103, 7).pixels, part.pixels);
}

TEST(StrokeDigits, NoneIsAllowed) {
  const Dataset data = generate_stroke_digits(1, 7, 0);
  EXPECT_EQ(data.size(), 0U);
  EXPECT_TRUE(data.pixels.empty());
}

TEST(StrokeDigits, ClassesAreBalanced) {
  const Dataset data = generate_stroke_digits(9, 20, 500);
  for (std::size_t block = 0; block < 50; ++block) {
    const auto first = data.labels.begin() + static_cast<std::ptrdiff_t>(10 * block);
    EXPECT_EQ(std::set<std::uint16_t>(first, first + 10).size(), 10U) << "block " << block;
  }
}

TEST(StrokeDigits, ImagesHoldInkOnDarkGround) {
  const Dataset data = generate_stroke_digits(2, 0, 200);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto image = std::span(data.pixels).subspan(i * 784, 784);
    const auto bright = std::ranges::count_if(image, [](std::uint8_t p) { return p > 110; });
    EXPECT_GT(bright, 8) << "image " << i;
    EXPECT_LT(bright, 392) << "image " << i;
  }
}

BatchMemory sample(const Samples& samples, std::size_t index) {
  BatchMemory batch;
  CounterRandom draws(1, 2, 3);
  samples.append(index, draws, batch);
  return batch;
}

void expect_equal(const BatchMemory& a, const BatchMemory& b) {
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.labels, b.labels);
}

TEST(LoadData, EmbeddedSetsAreTheGeneratedOnes) {
  const DataSplits splits = load_data("embedded", 3);
  EXPECT_EQ(splits.name, "embedded");
  ASSERT_EQ(splits.train->size(), kEmbeddedTrainImages);
  ASSERT_EQ(splits.test->size(), kEmbeddedTestImages);
  const ImageSamples first(generate_stroke_digits(3, 0, 5));
  // The test's images are the ones after the training's, so that none is in both.
  const ImageSamples next(generate_stroke_digits(3, kEmbeddedTrainImages, 5));
  for (const std::size_t index : {4U, 0U, 4U}) {
    expect_equal(sample(*splits.train, index), sample(first, index));
    expect_equal(sample(*splits.test, index), sample(next, index));
  }
}

TEST(LoadData, EmbeddedImagesAreDrawnByWhichThreadAsksFirst) {
  const DataSplits splits = load_data("embedded", 4);
  const ImageSamples expected(generate_stroke_digits(4, 0, 300));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t index = 0; index < 300; ++index) {
        expect_equal(sample(*splits.train, index), sample(expected, index));
      }
    });
  }
}

TEST(LoadData, EmbeddedSetsDifferBySeedAndPart) {
  const DataSplits splits = load_data("embedded", 3);
  EXPECT_EQ(splits.train->checksum(), load_data("embedded", 3).train->checksum());
  EXPECT_NE(splits.train->checksum(), load_data("embedded", 4).train->checksum());
  EXPECT_NE(splits.train->checksum(), splits.test->checksum());
  EXPECT_EQ(load_data("embedded", 3, "cifarnet").train->kind().shape[1], kCifarNetSide);
}

TEST(ShardOf, ShardsAreDisjointAndCoverEverything) {
  for (const std::size_t images : {0U, 1U, 7U, 100U, 101U}) {
    for (const std::size_t workers : {1U, 2U, 3U, 8U}) {
      std::size_t end = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        const Shard shard = shard_of(images, workers, worker);
        EXPECT_EQ(shard.begin, end);
        EXPECT_GE(shard.size(), images / workers);
        EXPECT_LE(shard.size(), images / workers + 1);
        end = shard.end;
      }
      EXPECT_EQ(end, images);
    }
  }
}

TEST(ShardOf, WorkerThatIsNotThereIsRefused) {
  expect_error(ErrorCode::kInvalidArgument, "no worker 3 of 3", [] { shard_of(10, 3, 3); });
  expect_error(ErrorCode::kInvalidArgument, "no worker 0 of 0", [] { shard_of(10, 0, 0); });
}

std::vector<std::uint32_t> take(BatchSampler& sampler, std::size_t batches) {
  std::vector<std::uint32_t> all;
  std::vector<std::uint32_t> batch;
  for (std::size_t i = 0; i < batches; ++i) {
    sampler.next(batch);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(BatchSamplerTest, EpochUsesEachImageOfTheShardOnceAndShardsCoverAll) {
  constexpr std::size_t kImages = 107;  // shards of 36, 36 and 35; batches of 5
  std::set<std::uint32_t> seen;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    BatchSampler sampler(kImages, 3, worker, 5, 11);
    const std::size_t shard = sampler.shard_size();
    EXPECT_EQ(shard, worker < 2 ? 36U : 35U);
    const auto stream = take(sampler, shard);  // 5 epochs exactly
    const std::set<std::uint32_t> first(stream.begin(),
                                        stream.begin() + static_cast<std::ptrdiff_t>(shard));
    EXPECT_EQ(first.size(), shard);
    for (std::size_t epoch = 1; epoch < 5; ++epoch) {
      const auto from = stream.begin() + static_cast<std::ptrdiff_t>(epoch * shard);
      EXPECT_EQ(std::set<std::uint32_t>(from, from + static_cast<std::ptrdiff_t>(shard)), first);
      EXPECT_FALSE(std::equal(from, from + static_cast<std::ptrdiff_t>(shard), stream.begin()))
          << "epoch " << epoch << " is not reshuffled";
    }
    for (const std::uint32_t image : first) {
      EXPECT_LT(image, kImages);
      EXPECT_TRUE(seen.insert(image).second) << image << " is in two shards";
    }
  }
  EXPECT_EQ(seen.size(), kImages);
}

TEST(BatchSamplerTest, BatchesAreAlwaysFull) {
  BatchSampler sampler(10, 1, 0, 4, 1);
  std::vector<std::uint32_t> batch = {99, 99, 99, 99, 99};
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(sampler.batches(), i);
    EXPECT_EQ(sampler.epoch(), 4 * i / 10);
    sampler.next(batch);
    EXPECT_EQ(batch.size(), 4U);
  }
}

TEST(BatchSamplerTest, OrderIsAFunctionOfTheArguments) {
  BatchSampler a(100, 2, 1, 8, 21);
  BatchSampler b(100, 2, 1, 8, 21);
  BatchSampler other_seed(100, 2, 1, 8, 22);
  const auto order = take(a, 30);
  EXPECT_EQ(order, take(b, 30));
  EXPECT_NE(order, take(other_seed, 30));
}

// From an independent implementation: two epochs of a shard of six.
TEST(BatchSamplerTest, OrderIsKnown) {
  BatchSampler sampler(12, 2, 0, 3, 1);
  EXPECT_EQ(take(sampler, 4), (std::vector<std::uint32_t>{7, 1, 5, 3, 10, 8, 8, 3, 10, 1, 5, 7}));
}

TEST(BatchSamplerTest, SeekResumes) {
  BatchSampler whole(50, 1, 0, 7, 3);
  const auto order = take(whole, 40);
  for (const std::uint64_t start : {0U, 1U, 7U, 8U, 33U}) {
    BatchSampler resumed(50, 1, 0, 7, 3);
    take(resumed, 20);
    resumed.seek(start);
    EXPECT_EQ(resumed.batches(), start);
    const auto rest = take(resumed, 40 - start);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(),
                           order.begin() + static_cast<std::ptrdiff_t>(7 * start), order.end()));
  }
  expect_error(ErrorCode::kInvalidArgument, "out of range", [&] { whole.seek(1ULL << 32); });
}

TEST(BatchSamplerTest, WhatCannotFillABatchIsRefused) {
  const auto refused = [](std::size_t images, std::size_t workers, std::size_t worker,
                          std::size_t batch, const std::string& part) {
    expect_error(ErrorCode::kInvalidArgument, part,
                 [&] { BatchSampler(images, workers, worker, batch, 1); });
  };
  refused(10, 3, 2, 4, "worker 2's shard has 3 samples, fewer than a batch of 4");
  refused(0, 1, 0, 1, "shard has 0 samples");
  refused(10, 1, 0, 0, "a batch of 0 samples");
  refused(10, 0, 0, 1, "no worker 0 of 0");
  refused(10, 2, 2, 1, "no worker 2 of 2");
  refused(std::size_t{1} << 33, 2, 1, 1, "fewer than 2^32");
  EXPECT_EQ(BatchSampler(10, 3, 2, 3, 1).shard_size(), 3U);
}

}  // namespace
}  // namespace tersewire::trainer
