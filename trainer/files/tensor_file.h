// Named arrays and facts about them in one file, in the safetensors format, which Python's package
// of that name opens: 8 bytes with the length of a JSON text, that text, and the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tersewire/bytes.h"

namespace tersewire {

struct TensorFile {
  struct Array {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;  // as many as the shape says

    bool operator==(const Array&) const = default;
  };

  // What the format calls metadata: texts by name.
  std::map<std::string, std::string> facts;
  std::map<std::string, Array> arrays;

  // Of a file that was read: the types of arrays that had others than 32-bit floats, as "BF16" ...
  std::map<std::string, std::string> types = {};
  // ... and the shapes of those whose values cannot be read, which are not in `arrays`.
  std::map<std::string, std::vector<std::uint64_t>> unread = {};

  bool operator==(const TensorFile&) const = default;
};

// The file's bytes. Among the facts will be "xxh64", a checksum of the whole file with zeros in its
// place. Requires shapes that fit. Cost: one copy of the values.
Bytes tensor_file_bytes(const TensorFile& file);

// What such a file holds, and where.
struct TensorFileIndex {
  struct Place {
    std::vector<std::uint64_t> shape;
    std::string type;  // "F32"
    std::size_t elems;
    std::size_t begin;  // in bytes of the file
    std::size_t bytes;
  };

  std::map<std::string, std::string> facts;
  std::map<std::string, Place> arrays;
};

// So many bytes of a file, from `begin` on, which it has; they stay where they are until the next
// call.
using PieceOfFile = std::function<ByteView(std::size_t begin, std::size_t count)>;

// Reads such a file, of anyone's making, of `size` bytes: "xxh64" is compared where it is there and
// is no fact then. Lengths are checked before anything is allocated. Throws kDataLoss for bytes
// that are malformed, damaged or cut off, and what `piece` throws. Cost: one pass where there is a
// checksum, in pieces of 1 MiB.
//   with_checksum  refuses a file without a checksum, and one whose values are not all 32-bit
//   floats,
//                  as in all that tensor_file_bytes() makes
TensorFileIndex index_tensor_file(std::size_t size, const PieceOfFile& piece, bool with_checksum);

// The same, of a file in memory, with its values: floats, integers and truth values of any length
// as 32-bit floats. Cost: one copy of them.
TensorFile parse_tensor_file(ByteView bytes, bool with_checksum = false);

}  // namespace tersewire
