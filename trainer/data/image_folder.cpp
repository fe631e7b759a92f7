#include "trainer/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"
#include "trainer/data/image_samples.h"

namespace tersewire::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxClasses = std::size_t{1} << 16;
constexpr std::uint64_t kMaxBytesInMemory = std::uint64_t{1} << 32;

[[noreturn]] void refuse_listing(const std::string& directory) {
  throw Error(ErrorCode::kNotFound,
              directory + " cannot be listed: check that it is there and that you may read it");
}

// Calls `visit` with each entry.
template <typename Visit>
void for_each_entry(const std::string& directory, const Visit& visit) {
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) visit(*entries);
  if (error) refuse_listing(directory);
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<std::string> classes_in(const std::string& directory) {
  std::vector<std::string> names;
  for_each_entry(directory, [&](const fs::directory_entry& entry) {
    if (is_directory(entry.path().string())) names.push_back(entry.path().filename().string());
  });
  std::ranges::sort(names);
  return names;
}

void append_files(const std::string& directory, std::uint16_t label,
                  std::vector<LabelledFile>& files) {
  const std::size_t begin = files.size();
  for_each_entry(directory, [&](const fs::directory_entry& entry) {
    std::error_code error;
    const std::string path = entry.path().string();
    if (!is_image_name(entry.path()) || !is_file(path)) return;
    files.push_back({.path = path, .bytes = entry.file_size(error), .label = label});
  });
  if (files.size() == begin) {
    refuse_file(directory, "it holds no .jpg, .jpeg or .png file; fetch the data again");
  }
  std::ranges::sort(files.begin() + static_cast<std::ptrdiff_t>(begin), files.end(), {},
                    &LabelledFile::path);
}

void check_classes(const std::string& directory, const std::vector<std::string>& classes) {
  if (classes.size() >= 2 && classes.size() <= kMaxClasses) return;
  refuse_file(directory, "it holds " + std::to_string(classes.size()) +
                             " class directories; there must be from 2 to " +
                             std::to_string(kMaxClasses));
}

std::vector<LabelledFile> list_part(const std::string& directory,
                                    const std::vector<std::string>& classes) {
  std::vector<LabelledFile> files;
  for (const std::string& name : classes_in(directory)) {
    const auto found = std::ranges::lower_bound(classes, name);
    if (found == classes.end() || *found != name) {
      refuse_file(path_in(directory, name),
                  "the training images have no such class; fetch the data again");
    }
    append_files(path_in(directory, name), static_cast<std::uint16_t>(found - classes.begin()),
                 files);
  }
  if (files.empty()) refuse_file(directory, "it holds no class directory; fetch the data again");
  return files;
}

std::string find_test(const std::string& directory) {
  for (const char* name : {"test", "val"}) {
    if (is_directory(path_in(directory, name))) return path_in(directory, name);
  }
  throw Error(ErrorCode::kNotFound,
              path_in(directory, "test") + " is missing, and so is " + path_in(directory, "val") +
                  ": put the test images into one of them, with a directory for each class");
}

void check_memory(const std::string& directory, const Dataset& images, std::size_t count) {
  if (images.image_bytes() * count <= kMaxBytesInMemory) return;
  refuse_file(directory, std::to_string(count) + " images of " + std::to_string(images.width) +
                             " x " + std::to_string(images.height) +
                             " pixels do not fit into 4 GiB of memory; give fewer or smaller ones");
}

[[noreturn]] void refuse_size(const std::string& path, const Image& image, const Dataset& images) {
  const auto text_of = [](int width, int height) {
    return std::to_string(width) + " x " + std::to_string(height);
  };
  refuse_file(path, "it has " + text_of(image.width, image.height) +
                        " pixels, but the images before it have " +
                        text_of(images.width, images.height) +
                        "; resize all to one size, or use a model that takes " +
                        text_of(kPhotoSide, kPhotoSide) + ", for which images are cropped");
}

// Decodes images that must all be of the size that `images`, which has none yet, says.
void read_images(const std::vector<LabelledFile>& files, Dataset& images) {
  images.pixels.reserve(files.size() * images.image_bytes());
  for (const LabelledFile& file : files) {
    const PixelImage image = read_image(file, images.channels);
    if (image.height != images.height || image.width != images.width) {
      refuse_size(file.path, image.view(), images);
    }
    images.pixels.insert(images.pixels.end(), image.pixels.begin(), image.pixels.end());
    images.labels.push_back(file.label);
  }
}

}  // namespace

bool holds_image_folder(const std::string& directory) {
  return is_directory(path_in(directory, "train"));
}

ImageFolder list_image_folder(const std::string& directory) {
  ImageFolder folder;
  folder.classes = classes_in(path_in(directory, "train"));
  check_classes(path_in(directory, "train"), folder.classes);
  folder.train = list_part(path_in(directory, "train"), folder.classes);
  folder.test = list_part(find_test(directory), folder.classes);
  return folder;
}

DataSplits load_image_folder(const std::string& directory, const std::vector<std::int64_t>& takes,
                             const Augmentation& augmentation) {
  ImageFolder folder = list_image_folder(directory);
  const auto classes = static_cast<int>(folder.classes.size());
  const int channels = takes.size() == 3 && takes[0] == 1 ? 1 : 3;
  // Also so that a build that cannot decode says so now, and not within the training.
  const PixelImage first = read_image(folder.train.front(), channels);
  if (takes == std::vector<std::int64_t>{3, kPhotoSide, kPhotoSide}) {
    return {
        .train =
            std::make_shared<PhotoSamples>(std::move(folder.train), classes, augmentation.train),
        .test = std::make_shared<PhotoSamples>(std::move(folder.test), classes, augmentation.test),
        .name = directory};
  }
  Dataset train{.classes = classes,
                .channels = channels,
                .height = first.height,
                .width = first.width,
                .pixels = {},
                .labels = {}};
  check_memory(directory, train, folder.train.size() + folder.test.size());
  Dataset test = train;
  read_images(folder.train, train);
  read_images(folder.test, test);
  return splits_of(std::move(train), std::move(test),
                   channels == 1 ? kMnistNormalization : kImageNetNormalization, augmentation,
                   directory);
}

}  // namespace tersewire::trainer
