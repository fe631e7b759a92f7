// Labelled samples, and batches of them as a network takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/batch.h"
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
  std::string name;                          // for people: "embedded", or the directory
  std::vector<std::string> unreadable = {};  // what was left out, and why: "PATH: WHY"
};

// Loads, or generates, a data set.
//   source   "embedded": the generated digits (stroke_digits.h); "embedded-text": the generated
//   text
//            (embedded_text.h); a directory with MNIST's four IDX files, plain or gzipped, with the
//            six files of CIFAR-10's binary version, with images by class (image_folder.h), or
//            with a text, input.txt; any other file is text (text_samples.h)
//   seed     which embedded set; a file's content does not depend on it
//   augment  how the images to learn from are varied: none, crop-flip or cifarnet (augmentation.h)
//   takes    the shape of a sample for the network that will use them, which matters to a directory
//            of images by class and to text; may be empty
//   skip_unreadable  leave out images that cannot be read
// Throws kNotFound where the source or one of its files is missing, kDataLoss where a file is
// malformed or files do not fit together, kInvalidArgument for an augmentation that does not exist
// or does not fit, kUnimplemented for images that this build cannot decode. Any thread. Cost: MNIST
// half a second, CIFAR-10 a third, the others less; images by class a minute a million of them, to
// list, and to decode as load_image_folder() says.
//
// To add a kind: a class derived from Samples, or a Dataset for ImageSamples where it is images of
// one size; a reader that checks every byte before it believes it, with its fuzz target; and in
// load_data.cpp how it is recognised, what loads it, and its words in the refusal.
DataSplits load_data(const std::string& source, std::uint64_t seed,
                     const std::string& augment = "none",
                     const std::vector<std::int64_t>& takes = {}, bool skip_unreadable = false);

// Makes batches of samples, keeping its memory from one to the next. One thread at a time.
class BatchMaker {
 public:
  // The samples must outlive it. `seed` and `worker`: what augmentation draws from.
  BatchMaker(const Samples& samples, std::uint64_t seed, std::uint64_t worker)
      : samples_(samples), seed_(seed), worker_(worker) {}

  // The samples with these indices. The same `number` repeats the same augmentation. Requires
  // worker below 2^24 and number below 2^40. Valid until the next call.
  const Batch& make(std::span<const std::uint32_t> indices, std::uint64_t number);

 private:
  const Samples& samples_;
  std::uint64_t seed_;
  std::uint64_t worker_;
  BatchMemory memory_;
  Batch batch_;
};

}  // namespace tersewire::trainer
