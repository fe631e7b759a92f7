#include "trainer/data/cifar10.h"

#include <vector>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"

namespace tersewire::trainer {
namespace {

constexpr int kClasses = 10;
constexpr int kChannels = 3;
constexpr int kSide = 32;

Dataset no_images() {
  return {.classes = kClasses,
          .channels = kChannels,
          .height = kSide,
          .width = kSide,
          .pixels = {},
          .labels = {}};
}

void check_size(std::size_t bytes, const std::string& name) {
  if (bytes > 0 && bytes % kCifar10RecordBytes == 0) return;
  refuse_file(name, "it has " + std::to_string(bytes) + " bytes, but CIFAR-10's records have " +
                        std::to_string(kCifar10RecordBytes) +
                        "; the file is truncated or something else, fetch it again");
}

// Appends the records of a file.
void append_records(std::span<const std::uint8_t> data, const std::string& name, Dataset& images) {
  check_size(data.size(), name);
  const std::size_t records = data.size() / kCifar10RecordBytes;
  images.labels.reserve(images.labels.size() + records);
  images.pixels.reserve(images.pixels.size() + records * images.image_bytes());
  for (std::size_t i = 0; i < records; ++i) {
    const auto record = data.subspan(i * kCifar10RecordBytes, kCifar10RecordBytes);
    if (record[0] >= kClasses) {
      refuse_file(name, "label " + std::to_string(i) + " is " + std::to_string(record[0]) +
                            ", but the classes are 0 to 9; give CIFAR-10's binary "
                            "version");
    }
    images.labels.push_back(record[0]);
    images.pixels.insert(images.pixels.end(), record.begin() + 1, record.end());
  }
}

std::string find_file(const std::string& directory, const char* name) {
  std::string path = path_in(directory, name);
  if (is_file(path)) return path;
  throw Error(ErrorCode::kNotFound,
              path +
                  " is missing: give a directory with all six files of CIFAR-10's binary "
                  "version, data_batch_1.bin to data_batch_5.bin and test_batch.bin");
}

}  // namespace

Dataset parse_cifar10(std::span<const std::uint8_t> data, const std::string& name) {
  Dataset images = no_images();
  append_records(data, name, images);
  return images;
}

Cifar10 read_cifar10(const std::string& directory) {
  Cifar10 data{.train = no_images(), .test = no_images()};
  for (const char* name : kCifar10Files) {
    const std::string path = find_file(directory, name);
    Dataset& images = name == kCifar10Files.back() ? data.test : data.train;
    append_records(read_file(path, kMaxCifar10FileBytes), path, images);
  }
  return data;
}

}  // namespace tersewire::trainer
