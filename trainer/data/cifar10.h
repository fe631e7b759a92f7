// Reads CIFAR-10's binary version: records of a label and an image of 32 x 32 pixels, whose red,
// green and blue planes follow each other. Functions here have no state: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// The first five are for training.
inline constexpr std::array<const char*, 6> kCifar10Files = {"data_batch_1.bin", "data_batch_2.bin",
                                                             "data_batch_3.bin", "data_batch_4.bin",
                                                             "data_batch_5.bin", "test_batch.bin"};

inline constexpr std::size_t kCifar10RecordBytes = 1 + 3 * 32 * 32;
// No file is larger: the original's have 31 million bytes.
inline constexpr std::uint64_t kMaxCifar10FileBytes = std::uint64_t{1} << 28;

struct Cifar10 {
  Dataset train;
  Dataset test;
};

// Parses a whole file: any number of records.
//   name  what the sentence of an error calls it
// Throws kDataLoss where there is no record, a record is cut off, or a label is above 9. Cost: one
// copy of the data.
Dataset parse_cifar10(std::span<const std::uint8_t> data, const std::string& name);

// Reads the six files of a directory, in order. Throws kNotFound where one is missing, and like
// parse_cifar10(). Cost: a quarter of a second; 184 MB.
Cifar10 read_cifar10(const std::string& directory);

}  // namespace tersewire::trainer
