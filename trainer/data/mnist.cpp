#include "trainer/data/mnist.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"
#include "trainer/data/idx_file.h"

namespace tersewire::trainer {
namespace {

constexpr int kClasses = 10;
constexpr std::uint32_t kMaxSide = 4096;

std::string find_file(const std::string& directory, const std::string& name) {
  std::string plain = path_in(directory, name);
  if (is_file(plain)) return plain;
  std::string zipped = plain + ".gz";
  if (is_file(zipped)) return zipped;
  std::string expected;
  for (const char* file : kMnistFiles)
    expected += (expected.empty() ? "" : ", ") + std::string(file);
  throw Error(ErrorCode::kNotFound,
              plain + " is missing, and so is its .gz: give a directory with the four files " +
                  expected + ", plain or gzipped, or use --data embedded, which needs none");
}

void check_rank(const std::string& path, const IdxArray& array, std::size_t rank,
                const std::string& content) {
  if (array.dims.size() == rank) return;
  refuse_file(path, content + " have " + std::to_string(rank) + " dimensions, but this file has " +
                        std::to_string(array.dims.size()) +
                        "; check that the files are not mixed up");
}

void take_images(const std::string& path, IdxArray array, Dataset& data) {
  check_rank(path, array, 3, "images");
  if (array.dims[1] > kMaxSide || array.dims[2] > kMaxSide) {
    refuse_file(path, "an image has more than " + std::to_string(kMaxSide) +
                          " pixels a side; give smaller ones");
  }
  data.height = static_cast<int>(array.dims[1]);
  data.width = static_cast<int>(array.dims[2]);
  data.pixels = std::move(array.bytes);
}

void take_labels(const std::string& path, const IdxArray& array, Dataset& data) {
  check_rank(path, array, 1, "labels");
  const auto wrong =
      std::ranges::find_if(array.bytes, [](std::uint8_t label) { return label >= kClasses; });
  if (wrong != array.bytes.end()) {
    refuse_file(path, "label " + std::to_string(wrong - array.bytes.begin()) + " is " +
                          std::to_string(*wrong) +
                          ", but the classes are 0 to 9; give labels of ten classes");
  }
  data.classes = kClasses;
  data.labels.assign(array.bytes.begin(), array.bytes.end());
}

Dataset load_pair(const std::string& directory, const char* images_name, const char* labels_name) {
  const std::string images = find_file(directory, images_name);
  const std::string labels = find_file(directory, labels_name);
  Dataset data;
  take_images(images, read_idx_file(images), data);
  take_labels(labels, read_idx_file(labels), data);
  const std::size_t count = data.pixels.size() / data.image_bytes();
  if (count != data.size()) {
    refuse_file(labels, std::to_string(data.size()) + " labels do not fit the " +
                            std::to_string(count) + " images of " + images +
                            "; fetch both files again");
  }
  return data;
}

}  // namespace

Mnist read_mnist(const std::string& directory) {
  Mnist data{.train = load_pair(directory, kMnistFiles[0], kMnistFiles[1]),
             .test = load_pair(directory, kMnistFiles[2], kMnistFiles[3])};
  if (data.train.height != data.test.height || data.train.width != data.test.width) {
    refuse_file(directory,
                "the training and test images differ in size; fetch all four files "
                "from one place");
  }
  return data;
}

}  // namespace tersewire::trainer
