// Labelled samples, and batches of them as a network takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/batch.h"
#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// The memory of a batch that is being made.
struct BatchMemory {
  std::vector<float> values;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;
};

// Samples of one kind. Nobody changes them: any number of threads may use them at once.
class Samples {
 public:
  virtual ~Samples() = default;

  [[nodiscard]] virtual const SampleKind& kind() const noexcept = 0;
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;

  // Appends sample `index`, below size(), as a network takes it. What is random about it
  // (augmentation) comes from `draws`.
  virtual void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const = 0;

  // XXH64 of everything that append() may give.
  [[nodiscard]] virtual std::uint64_t checksum() const = 0;
};

// What a training job uses: samples to learn from, and others of the same kind to measure what was
// learned.
struct DataSplits {
  std::shared_ptr<const Samples> train;
  std::shared_ptr<const Samples> test;
  std::string name;  // for people: "embedded", or the directory
};

// Loads, or generates, a data set.
//   source   "embedded": the generated digits (stroke_digits.h), which need no file; otherwise a
//            directory with MNIST's four IDX files, plain or gzipped (a plain one is preferred), or
//            with the six files of CIFAR-10's binary version
//   seed     which embedded set; a directory's content does not depend on it
//   augment  how the images to learn from are varied: none, crop-flip or cifarnet (augmentation.h)
// Throws kNotFound where the directory or one of its files is missing, kDataLoss where a file is
// malformed or files do not fit together, kInvalidArgument for an augmentation that does not exist
// or does not fit. Any thread. Cost: "embedded" a quarter of a second, MNIST half of one, CIFAR-10
// a quarter.
DataSplits load_data(const std::string& source, std::uint64_t seed,
                     const std::string& augment = "none");

// Makes batches of samples, keeping its memory from one to the next. One thread at a time.
class BatchMaker {
 public:
  // The samples must outlive it. `seed` and `worker`: what augmentation draws from.
  BatchMaker(const Samples& samples, std::uint64_t seed, std::uint64_t worker)
      : samples_(samples), seed_(seed), worker_(worker) {}

  // The samples with these indices. The same `number` repeats the same augmentation. Requires
  // worker and number below 2^24, indices.size() below 2^16. Valid until the next call.
  const Batch& make(std::span<const std::uint32_t> indices, std::uint64_t number);

 private:
  const Samples& samples_;
  std::uint64_t seed_;
  std::uint64_t worker_;
  BatchMemory memory_;
  Batch batch_;
};

}  // namespace tersewire::trainer
