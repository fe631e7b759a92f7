#include "trainer/data/dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/idx_file.h"
#include "trainer/data/image_samples.h"
#include "trainer/data/samples.h"
#include "trainer/data/stroke_digits.h"

namespace tersewire::trainer {
namespace {

constexpr int kMnistClasses = 10;
constexpr std::uint32_t kMaxSide = 4096;

// Domains of CounterRandom: what the sampler draws must not repeat what draws the images.
constexpr std::uint64_t kSplitDomain = 0x73706C6974;  // "split"
constexpr std::uint64_t kEpochDomain = 0x65706F6368;  // "epoch"

constexpr std::array<const char*, 4> kMnistFiles = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;  // what cannot be looked at is not there
  return std::filesystem::is_regular_file(path, ignored);
}

std::string find_file(const std::string& directory, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(directory) / name;
  if (is_file(plain)) return plain.string();
  const std::string zipped = plain.string() + ".gz";
  if (is_file(zipped)) return zipped;
  std::string expected;
  for (const char* file : kMnistFiles)
    expected += (expected.empty() ? "" : ", ") + std::string(file);
  throw Error(ErrorCode::kNotFound,
              plain.string() +
                  " is missing, and so is its .gz: give a directory with the four files " +
                  expected + ", plain or gzipped, or use --data embedded, which needs none");
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, path + ": " + what);
}

void check_rank(const std::string& path, const IdxArray& array, std::size_t rank,
                const std::string& content) {
  if (array.dims.size() == rank) return;
  refuse(path, content + " have " + std::to_string(rank) + " dimensions and this file has " +
                   std::to_string(array.dims.size()) + "; check that the files are not mixed up");
}

void take_images(const std::string& path, IdxArray array, Dataset& data) {
  check_rank(path, array, 3, "images");
  if (array.dims[1] > kMaxSide || array.dims[2] > kMaxSide) {
    refuse(path, "an image has more than " + std::to_string(kMaxSide) +
                     " pixels a side; give smaller ones");
  }
  data.height = static_cast<int>(array.dims[1]);
  data.width = static_cast<int>(array.dims[2]);
  data.pixels = std::move(array.bytes);
}

void take_labels(const std::string& path, IdxArray array, Dataset& data) {
  check_rank(path, array, 1, "labels");
  const auto wrong =
      std::ranges::find_if(array.bytes, [](std::uint8_t label) { return label >= kMnistClasses; });
  if (wrong != array.bytes.end()) {
    refuse(path, "label " + std::to_string(wrong - array.bytes.begin()) + " is " +
                     std::to_string(*wrong) +
                     " and there are only the classes 0 to 9; give labels "
                     "of ten classes");
  }
  data.classes = kMnistClasses;
  data.labels = std::move(array.bytes);
}

Dataset load_pair(const std::string& directory, const char* images_name, const char* labels_name) {
  const std::string images = find_file(directory, images_name);
  const std::string labels = find_file(directory, labels_name);
  Dataset data;
  take_images(images, read_idx_file(images), data);
  take_labels(labels, read_idx_file(labels), data);
  const std::size_t count = data.pixels.size() / data.image_bytes();
  if (count != data.size()) {
    refuse(labels, std::to_string(data.size()) + " labels do not fit the " + std::to_string(count) +
                       " images of " + images + "; fetch both files again");
  }
  return data;
}

DataSplits splits_of(Dataset train, Dataset test, const std::string& name) {
  return {.train = std::make_shared<ImageSamples>(std::move(train)),
          .test = std::make_shared<ImageSamples>(std::move(test)),
          .name = name};
}

DataSplits load_directory(const std::string& directory) {
  Dataset train = load_pair(directory, kMnistFiles[0], kMnistFiles[1]);
  Dataset test = load_pair(directory, kMnistFiles[2], kMnistFiles[3]);
  if (train.height != test.height || train.width != test.width) {
    refuse(directory,
           "the images for training and for the test differ in size; fetch all four "
           "files from one place");
  }
  return splits_of(std::move(train), std::move(test), directory);
}

DataSplits make_embedded(std::uint64_t seed) {
  return splits_of(generate_stroke_digits(seed, 0, kEmbeddedTrainImages),
                   generate_stroke_digits(seed, kEmbeddedTrainImages, kEmbeddedTestImages),
                   "embedded");
}

// Fisher and Yates's, written out: std::shuffle may differ between libraries.
void shuffle(std::span<std::uint32_t> values, CounterRandom random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

[[noreturn]] void refuse_argument(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

std::vector<std::uint32_t> shard_images(std::size_t images, std::size_t workers, std::size_t worker,
                                        std::uint64_t seed) {
  const Shard shard = shard_of(images, workers, worker);
  if (images > std::numeric_limits<std::uint32_t>::max()) {
    refuse_argument(std::to_string(images) + " training images are too many; use fewer than 2^32");
  }
  std::vector<std::uint32_t> all(images);
  std::iota(all.begin(), all.end(), 0U);
  shuffle(all, CounterRandom(seed, kSplitDomain, 0));
  return {all.begin() + static_cast<std::ptrdiff_t>(shard.begin),
          all.begin() + static_cast<std::ptrdiff_t>(shard.end)};
}

}  // namespace

DataSplits load_data(const std::string& source, std::uint64_t seed) {
  return source == "embedded" ? make_embedded(seed) : load_directory(source);
}

Shard shard_of(std::size_t images, std::size_t workers, std::size_t worker) {
  if (worker >= workers) {
    refuse_argument("there is no worker " + std::to_string(worker) + " of " +
                    std::to_string(workers) + "; workers are numbered from 0");
  }
  // The first `larger` shards have one image more.
  const std::size_t share = images / workers;
  const std::size_t larger = images % workers;
  const std::size_t begin = worker * share + std::min(worker, larger);
  return {.begin = begin, .end = begin + share + (worker < larger ? 1 : 0)};
}

BatchSampler::BatchSampler(std::size_t images, std::size_t workers, std::size_t worker,
                           std::size_t batch, std::uint64_t seed)
    : batch_(batch),
      seed_(seed),
      worker_(worker),
      shard_(shard_images(images, workers, worker, seed)) {
  if (batch == 0) refuse_argument("a batch of 0 images trains nothing; use at least 1");
  if (shard_.size() < batch) {
    refuse_argument("worker " + std::to_string(worker) + "'s shard has " +
                    std::to_string(shard_.size()) + " images and a batch " + std::to_string(batch) +
                    "; use smaller batches, fewer workers or more images");
  }
  shuffle_for(0);
}

std::uint64_t BatchSampler::epoch() const noexcept { return batches_ * batch_ / shard_.size(); }

void BatchSampler::next(std::vector<std::uint32_t>& indices) {
  indices.clear();
  while (indices.size() < batch_) {
    const std::uint64_t position = batches_ * batch_ + indices.size();
    shuffle_for(position / order_.size());
    const std::size_t from = position % order_.size();
    const std::size_t count = std::min(batch_ - indices.size(), order_.size() - from);
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(from);
    indices.insert(indices.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
  ++batches_;
}

void BatchSampler::seek(std::uint64_t batches) {
  // Below this limit neither an epoch nor a position, at most batches * 2^32, can wrap.
  if (batches > std::numeric_limits<std::uint32_t>::max()) {
    refuse_argument("batch " + std::to_string(batches) + " is too far on; go to one below 2^32");
  }
  batches_ = batches;
}

void BatchSampler::shuffle_for(std::uint64_t epoch) {
  if (!order_.empty() && epoch == shuffled_epoch_) return;
  // From the same start every time, so that an epoch's order does not depend on the one before.
  order_ = shard_;
  // Workers and epochs are fewer than 2^32, so that no two share a stream.
  shuffle(order_, CounterRandom(seed_, kEpochDomain, worker_ << 32 | epoch));
  shuffled_epoch_ = epoch;
}

}  // namespace tersewire::trainer
