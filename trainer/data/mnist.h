// MNIST, or another set of greyscale images of ten classes in MNIST's four IDX files.
#pragma once

#include <array>
#include <string>

#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// The first two are for training; images, then their labels.
inline constexpr std::array<const char*, 4> kMnistFiles = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

struct Mnist {
  Dataset train;
  Dataset test;
};

// Reads the four files of a directory, plain or gzipped (a plain one is preferred). Throws
// kNotFound where one is missing, kDataLoss where a file is malformed, a label is above 9, or files
// do not fit together. Any thread. Cost: half a second for MNIST.
Mnist read_mnist(const std::string& directory);

}  // namespace tersewire::trainer
