// The kinds of data sets there are, and which of them a directory or file is.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/cifar10.h"
#include "trainer/data/data_files.h"
#include "trainer/data/embedded_text.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/image_samples.h"
#include "trainer/data/mnist.h"
#include "trainer/data/samples.h"
#include "trainer/data/stroke_samples.h"
#include "trainer/data/text_samples.h"

namespace tersewire::trainer {
namespace {

struct Request {
  const std::string& source;
  std::uint64_t seed;
  const std::string& augment;
  const std::vector<std::int64_t>& takes;
};

DataSplits load_embedded(const Request& request) {
  const Augmentation augmentation = augmentation_of(request.augment);
  return {.train = std::make_shared<StrokeSamples>(request.seed, 0, kEmbeddedTrainImages,
                                                   augmentation.train),
          .test = std::make_shared<StrokeSamples>(request.seed, kEmbeddedTrainImages,
                                                  kEmbeddedTestImages, augmentation.test),
          .name = request.source};
}

DataSplits load_mnist(const Request& request) {
  Mnist data = read_mnist(request.source);
  return splits_of(std::move(data.train), std::move(data.test), kMnistNormalization,
                   augmentation_of(request.augment), request.source);
}

DataSplits load_cifar10(const Request& request) {
  Cifar10 data = read_cifar10(request.source);
  return splits_of(std::move(data.train), std::move(data.test), kCifar10Normalization,
                   augmentation_of(request.augment), request.source);
}

void check_text_is_not_varied(const Request& request) {
  augmentation_of(request.augment);
  if (request.augment == "none") return;
  throw Error(ErrorCode::kInvalidArgument, "the augmentation " + request.augment +
                                               " is for images, but '" + request.source +
                                               "' is text; use --augment none");
}

// Of a network that takes text of any length, or none, the usual one.
std::size_t text_sample_length(const Request& request) {
  return request.takes.size() == 1 ? static_cast<std::size_t>(request.takes[0]) : kTextSampleLength;
}

DataSplits load_embedded_text(const Request& request) {
  check_text_is_not_varied(request);
  const std::string text = generate_text(request.seed, kEmbeddedTextBytes);
  return split_text({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                    request.source, text_sample_length(request));
}

DataSplits load_text(const Request& request, const std::string& path) {
  check_text_is_not_varied(request);
  return split_text(read_file(path, kMaxTextBytes), request.source, text_sample_length(request));
}

// As tinyshakespeare's, the text's only file.
constexpr const char* kTextFile = "input.txt";

// One of a kind's files is enough to know it by: what is missing its reader says.
bool holds_mnist(const std::string& directory) {
  return std::ranges::any_of(kMnistFiles, [&](const std::string& name) {
    return is_file(path_in(directory, name)) || is_file(path_in(directory, name) + ".gz");
  });
}

bool holds_cifar10(const std::string& directory) {
  return std::ranges::any_of(kCifar10Files,
                             [&](const char* name) { return is_file(path_in(directory, name)); });
}

bool holds_data_set(const std::string& directory) {
  return holds_mnist(directory) || holds_cifar10(directory) || holds_image_folder(directory) ||
         is_file(path_in(directory, kTextFile));
}

[[noreturn]] void refuse_source(const std::string& source) {
  const auto inner = is_directory(source) ? directories_in(source) : std::vector<std::string>();
  for (const std::string& name : inner) {
    if (!holds_data_set(path_in(source, name))) continue;
    throw Error(ErrorCode::kNotFound, source + " holds its data set one level deeper; name " +
                                          path_in(source, name) + " with --data");
  }
  const std::string what =
      is_directory(source) ? " holds no known data set" : " is neither a directory nor a file";
  throw Error(ErrorCode::kNotFound,
              source + what +
                  ": looked for MNIST's four files (train-images-idx3-ubyte, ...), CIFAR-10's six "
                  "(data_batch_1.bin, ..., test_batch.bin), images in train/CLASS/ and a text's "
                  "input.txt; give a directory with one of these, a file of text, or --data "
                  "embedded or embedded-text, which need no file");
}

}  // namespace

DataSplits load_data(const std::string& source, std::uint64_t seed, const std::string& augment,
                     const std::vector<std::int64_t>& takes, bool skip_unreadable) {
  const Request request{source, seed, augment, takes};
  if (skip_unreadable && !holds_image_folder(source)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--skip-unreadable is for directories of images by class, and '" + source +
                    "' is none; omit it");
  }
  if (source == "embedded") return load_embedded(request);
  if (source == "embedded-text") return load_embedded_text(request);
  if (holds_mnist(source)) return load_mnist(request);
  if (holds_cifar10(source)) return load_cifar10(request);
  if (holds_image_folder(source)) {
    return load_image_folder(source, takes, augmentation_of(augment), skip_unreadable);
  }
  if (is_file(source)) return load_text(request, source);
  if (const std::string text = path_in(source, kTextFile); is_file(text)) {
    return load_text(request, text);
  }
  refuse_source(source);
}

}  // namespace tersewire::trainer
