// Reads IDX files, the format of MNIST: a magic number, dimensions, and unsigned bytes.
//
// The bytes are believed only after they were checked, and memory grows with the data that is
// there, not with what a header claims. Functions here have no state: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tersewire::trainer {

// What an IDX file holds. `bytes` has exactly as many elements as the product of `dims`, the last
// dimension fastest; there are one to four dimensions and none is 0.
struct IdxArray {
  std::vector<std::uint32_t> dims;
  std::vector<std::uint8_t> bytes;
};

// No array is larger: MNIST's largest has 47 million bytes.
inline constexpr std::uint64_t kMaxIdxBytes = std::uint64_t{1} << 30;

// Parses a whole uncompressed IDX file.
//   data  the file's bytes; any alignment
//   name  what the sentence of an error calls them
// Throws kDataLoss, naming the offset, for another magic number, an element type other than
// unsigned byte, no or too many dimensions, a dimension of 0, more than kMaxIdxBytes, and bytes
// that are missing or left over. Cost: one copy of the data.
IdxArray parse_idx(std::span<const std::byte> data, const std::string& name = "IDX data");

// Reads an IDX file, plain or gzipped, whatever it is called. Throws kNotFound where it cannot be
// opened, and kDataLoss where parse_idx would or the compressed data is damaged or ends early. Like
// gzip, it ignores what follows the end of the compressed data. Cost: one pass; memory for the
// array.
IdxArray read_idx_file(const std::string& path);

}  // namespace tersewire::trainer
