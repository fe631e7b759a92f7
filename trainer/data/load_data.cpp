// The kinds of data sets there are, and which of them a directory or file is.
#include <algorithm>
#include <string>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/cifar10.h"
#include "trainer/data/data_files.h"
#include "trainer/data/image_samples.h"
#include "trainer/data/mnist.h"
#include "trainer/data/samples.h"
#include "trainer/data/stroke_digits.h"

namespace tersewire::trainer {
namespace {

struct Request {
  const std::string& source;
  std::uint64_t seed;
  Augmentation augmentation;
};

DataSplits load_embedded(const Request& request) {
  return splits_of(generate_stroke_digits(request.seed, 0, kEmbeddedTrainImages),
                   generate_stroke_digits(request.seed, kEmbeddedTrainImages, kEmbeddedTestImages),
                   kMnistNormalization, request.augmentation, request.source);
}

DataSplits load_mnist(const Request& request) {
  Mnist data = read_mnist(request.source);
  return splits_of(std::move(data.train), std::move(data.test), kMnistNormalization,
                   request.augmentation, request.source);
}

DataSplits load_cifar10(const Request& request) {
  Cifar10 data = read_cifar10(request.source);
  return splits_of(std::move(data.train), std::move(data.test), kCifar10Normalization,
                   request.augmentation, request.source);
}

// One of a kind's files is enough to know it by: what is missing its reader says.
bool holds_mnist(const std::string& directory) {
  return std::ranges::any_of(kMnistFiles, [&](const std::string& name) {
    return is_file(directory + "/" + name) || is_file(directory + "/" + name + ".gz");
  });
}

bool holds_cifar10(const std::string& directory) {
  return std::ranges::any_of(kCifar10Files,
                             [&](const char* name) { return is_file(directory + "/" + name); });
}

[[noreturn]] void refuse_source(const std::string& source) {
  const std::string what =
      is_directory(source) ? " holds no data set that is known" : " is no directory";
  throw Error(ErrorCode::kNotFound,
              source + what +
                  ": looked for MNIST's four files (train-images-idx3-ubyte, ...) and CIFAR-10's "
                  "six (data_batch_1.bin, ..., test_batch.bin); give a directory with one of "
                  "these, or use --data embedded, which needs no file");
}

}  // namespace

DataSplits load_data(const std::string& source, std::uint64_t seed, const std::string& augment) {
  const Request request{source, seed, augmentation_of(augment)};
  if (source == "embedded") return load_embedded(request);
  if (holds_mnist(source)) return load_mnist(request);
  if (holds_cifar10(source)) return load_cifar10(request);
  refuse_source(source);
}

}  // namespace tersewire::trainer
