// A directory of images by class, as ImageNet's and many others are laid out:
//   train/CLASS/*.jpg or .jpeg or .png    to learn from
//   test/CLASS/* or val/CLASS/*           to test with
// Functions here have no state: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/augmentation.h"
#include "trainer/data/photo_samples.h"
#include "trainer/data/samples.h"

namespace tersewire::trainer {

// What a directory holds, in the order of the names of classes and files, byte by byte.
struct ImageFolder {
  std::vector<std::string> classes;  // by label
  std::vector<LabelledFile> train;
  std::vector<LabelledFile> test;
};

// Whether a directory is laid out like that: whether it holds one named train.
bool holds_image_folder(const std::string& directory);

// Lists a directory. Files with other endings are no images, and what systems leave behind (names
// with a dot, __MACOSX) counts neither as image nor as class. Throws kNotFound where there is
// neither test nor val or the directories cannot be listed; kDataLoss for fewer than 2 classes,
// more than 2^16, one without an image, one that the training does not have, and a test without.
ImageFolder list_image_folder(const std::string& directory);

// Reads a directory for a network that takes samples of `takes`, which may be empty. Where that is
// kPhotoSide pixels a side the samples are PhotoSamples; otherwise all images must be of one size
// and are held in memory, in as many channels as the network takes, else 3. Each is decoded once,
// but photographs whose files have more than 4 GiB only with `skip_unreadable`.
//   skip_unreadable  leaves out what cannot be read, which DataSplits::unreadable says
// Throws as list_image_folder() and ImageSamples do, kUnimplemented as decode_image() does, and
// kDataLoss where sizes differ, all together are more than 4 GiB in memory, and for what cannot be
// read, all of it in one sentence.
DataSplits load_image_folder(const std::string& directory, const std::vector<std::int64_t>& takes,
                             const Augmentation& augmentation, bool skip_unreadable = false);

}  // namespace tersewire::trainer
