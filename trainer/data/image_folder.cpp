#include "trainer/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "tersewire/counted.h"
#include "tersewire/error.h"
#include "tersewire/thread_pool.h"
#include "trainer/data/data_files.h"
#include "trainer/data/image_samples.h"

namespace tersewire::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxClasses = std::size_t{1} << 16;
constexpr std::uint64_t kMaxBytesInMemory = std::uint64_t{1} << 32;

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// In the order of their names.
std::vector<LabelledFile> images_in(const std::string& directory, std::uint16_t label = 0) {
  std::vector<LabelledFile> files;
  for (const std::string& path : entries_in(directory)) {
    std::error_code error;
    if (!is_image_name(path) || !is_file(path)) continue;
    files.push_back({.path = path, .bytes = fs::file_size(path, error), .label = label});
  }
  return files;
}

constexpr const char* kImageNames = "no .jpg, .jpeg or .png file";

void append_files(const std::string& directory, std::uint16_t label,
                  std::vector<LabelledFile>& files) {
  const std::vector<LabelledFile> found = images_in(directory, label);
  if (!found.empty()) {
    files.insert(files.end(), found.begin(), found.end());
    return;
  }
  for (const std::string& deeper : directories_in(directory)) {
    if (images_in(path_in(directory, deeper)).empty()) continue;
    refuse_file(directory, std::string("it holds ") + kImageNames +
                               " itself, but in directories such as " + deeper +
                               ", one level too deep; move the images up into " + directory +
                               ", or, if those are the classes, the directories into " +
                               fs::path(directory).parent_path().string());
  }
  refuse_file(directory, std::string("it holds ") + kImageNames +
                             "; put the images of this class into it, or remove it");
}

void check_classes(const std::string& directory, const std::vector<std::string>& classes) {
  if (classes.size() >= 2 && classes.size() <= kMaxClasses) return;
  refuse_file(directory, "it holds " +
                             counted(classes.size(), "class directory", "class directories") +
                             "; there must be from 2 to " + std::to_string(kMaxClasses) +
                             ", each with the images of one class");
}

std::vector<LabelledFile> list_part(const std::string& directory,
                                    const std::vector<std::string>& classes) {
  std::vector<LabelledFile> files;
  for (const std::string& name : directories_in(directory)) {
    const auto found = std::ranges::lower_bound(classes, name);
    append_files(path_in(directory, name), static_cast<std::uint16_t>(found - classes.begin()),
                 files);
    if (found == classes.end() || *found != name) {
      refuse_file(path_in(directory, name),
                  "the training images have no such class; add it to them, or remove it here");
    }
  }
  return files;
}

// The first with directories of classes: others' images have no labels.
std::string find_test(const std::string& directory) {
  std::string unlabelled;
  for (const char* name : {"test", "val"}) {
    const std::string part = path_in(directory, name);
    if (!is_directory(part)) continue;
    if (!directories_in(part).empty()) return part;
    if (unlabelled.empty()) unlabelled = part;
  }
  if (!unlabelled.empty()) {
    refuse_file(unlabelled,
                "it holds no class directory; put its images into one directory for each class");
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

// What cannot be read, and why: "PATH: WHY".
using Unreadable = std::vector<std::string>;

// Does `read`, which may find that a file cannot be read: whether it could.
template <typename Read>
bool reads(Unreadable& unreadable, const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss && error.code() != ErrorCode::kNotFound) throw;
    const std::string sentence = error.what();
    unreadable.push_back(sentence.substr(0, sentence.rfind("; ")));
    return false;
  }
}

// Decodes images that must all be of the size of the first, or of the one that `images` has.
void read_images(const std::string& directory, const std::vector<LabelledFile>& files,
                 std::size_t all_files, Dataset& images, Unreadable& unreadable) {
  for (const LabelledFile& file : files) {
    PixelImage image;
    if (!reads(unreadable, [&] { image = read_image(file, images.channels); })) continue;
    if (images.height == 0) {
      images.height = image.height;
      images.width = image.width;
      check_memory(directory, images, all_files);
    }
    if (images.pixels.empty()) images.pixels.reserve(files.size() * images.image_bytes());
    if (image.height != images.height || image.width != images.width) {
      refuse_size(file.path, image.view(), images);
    }
    images.pixels.insert(images.pixels.end(), image.pixels.begin(), image.pixels.end());
    images.labels.push_back(file.label);
  }
}

// Decodes photographs once, on all cores, and keeps those that can be.
void keep_readable(std::vector<LabelledFile>& files, Unreadable& unreadable) {
  std::vector<Unreadable> why(files.size());
  ThreadPool(allowed_cores()).run(files.size(), [&](std::size_t i) {
    reads(why[i], [&] { check_photo(files[i]); });
  });
  std::vector<LabelledFile> readable;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (why[i].empty()) readable.push_back(files[i]);
    unreadable.insert(unreadable.end(), why[i].begin(), why[i].end());
  }
  files = std::move(readable);
}

void refuse_unreadable(const Unreadable& unreadable, std::size_t all_files) {
  constexpr std::size_t kNamed = 100;
  if (unreadable.empty()) return;
  std::string files;
  for (std::size_t i = 0; i < std::min(unreadable.size(), kNamed); ++i) {
    files += (i == 0 ? "" : ", ") + unreadable[i];
  }
  if (unreadable.size() > kNamed) {
    files += " and " + std::to_string(unreadable.size() - kNamed) + " more";
  }
  throw Error(ErrorCode::kDataLoss,
              std::to_string(unreadable.size()) + " of " + std::to_string(all_files) +
                  " images cannot be read: " + files +
                  "; replace or remove them, or leave them out with --skip-unreadable");
}

// Whether what was left out leaves something to train and test with.
template <typename Labels>
void check_what_is_left(const std::string& directory, const std::vector<std::string>& classes,
                        const Labels& train, bool tests) {
  std::vector<bool> found(classes.size());
  for (const auto& label : train) found[label] = true;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (found[i]) continue;
    refuse_file(path_in(path_in(directory, "train"), classes[i]),
                "none of its images can be read; replace them, or remove the class");
  }
  if (!tests) refuse_file(directory, "none of its test images can be read; replace them");
}

std::uint64_t bytes_of(const ImageFolder& folder) {
  std::uint64_t bytes = 0;
  for (const auto* part : {&folder.train, &folder.test}) {
    for (const LabelledFile& file : *part) bytes += file.bytes;
  }
  return bytes;
}

DataSplits load_photos(const std::string& directory, ImageFolder folder, View train, View test,
                       bool skip_unreadable) {
  const std::size_t all_files = folder.train.size() + folder.test.size();
  DataSplits splits{.train = nullptr, .test = nullptr, .name = directory};
  if (skip_unreadable || bytes_of(folder) <= kMaxBytesInMemory) {
    keep_readable(folder.train, splits.unreadable);
    keep_readable(folder.test, splits.unreadable);
    if (!skip_unreadable) refuse_unreadable(splits.unreadable, all_files);
    std::vector<std::uint16_t> labels;
    for (const LabelledFile& file : folder.train) labels.push_back(file.label);
    check_what_is_left(directory, folder.classes, labels, !folder.test.empty());
  } else {
    check_photo(folder.train.front());  // so that a build that cannot decode says so now
  }
  const auto classes = static_cast<int>(folder.classes.size());
  splits.train = std::make_shared<PhotoSamples>(std::move(folder.train), classes, train);
  splits.test = std::make_shared<PhotoSamples>(std::move(folder.test), classes, test);
  return splits;
}

}  // namespace

bool holds_image_folder(const std::string& directory) {
  return is_directory(path_in(directory, "train"));
}

ImageFolder list_image_folder(const std::string& directory) {
  ImageFolder folder;
  const std::string train = path_in(directory, "train");
  folder.classes = directories_in(train);
  folder.train = list_part(train, folder.classes);
  check_classes(train, folder.classes);
  folder.test = list_part(find_test(directory), folder.classes);
  return folder;
}

DataSplits load_image_folder(const std::string& directory, const std::vector<std::int64_t>& takes,
                             const Augmentation& augmentation, bool skip_unreadable) {
  ImageFolder folder = list_image_folder(directory);
  if (takes == std::vector<std::int64_t>{3, kPhotoSide, kPhotoSide}) {
    return load_photos(directory, std::move(folder), augmentation.train, augmentation.test,
                       skip_unreadable);
  }
  const int channels = takes.size() == 3 && takes[0] == 1 ? 1 : 3;
  const std::size_t all_files = folder.train.size() + folder.test.size();
  Unreadable unreadable;
  Dataset train{.classes = static_cast<int>(folder.classes.size()),
                .channels = channels,
                .height = 0,
                .width = 0,
                .pixels = {},
                .labels = {}};
  read_images(directory, folder.train, all_files, train, unreadable);
  Dataset test = train;
  test.pixels.clear();
  test.labels.clear();
  read_images(directory, folder.test, all_files, test, unreadable);
  if (!skip_unreadable) refuse_unreadable(unreadable, all_files);
  check_what_is_left(directory, folder.classes, train.labels, !test.labels.empty());
  DataSplits splits = splits_of(std::move(train), std::move(test),
                                channels == 1 ? kMnistNormalization : kImageNetNormalization,
                                augmentation, directory);
  splits.unreadable = std::move(unreadable);
  return splits;
}

}  // namespace tersewire::trainer
