// NumPy's .npy files, as far as gradients need them: little-endian f4 and f8 in C order, versions
// 1.0, 2.0 and 3.0, Python 2's among them. Bytes are checked before they are believed. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tersewire/byte_source.h"
#include "tersewire/bytes.h"
#include "tersewire/message.h"

namespace tersewire {

// What an .npy file says before its values.
struct NpyHeader {
  ElementType element_type = ElementType::kFloat32;
  std::vector<std::uint64_t> shape;
  std::size_t elems = 0;
};

// Reads such a file from its beginning to its end. No more memory is taken than for twice the
// values that have come.
class NpyReader {
 public:
  // Reads the header of what `source` brings, which must outlive this. Throws kDataLoss where that
  // is no .npy file, or one that is known to be cut or too long, and kInvalidArgument, saying how
  // to save it instead, for arrays of other kinds than those above and for those that no frame can
  // describe (above 32 dimensions or 2^40 elements).
  explicit NpyReader(ByteSource& source);

  [[nodiscard]] const NpyHeader& header() const { return header_; }

  // Makes `values` the next `count` values: no more than the header still promises. Those of f8 are
  // rounded to f32. Throws kDataLoss where the file ends before, and kInvalidArgument, naming the
  // first, where a finite one is beyond what f32 holds.
  void read(std::size_t count, Floats& values);
  // The same as they are, of f8.
  void read(std::size_t count, Doubles& values);

  // Throws kDataLoss where more follows. To be called behind the last value.
  void expect_end();

 private:
  // Fails unless a file whose values take so many bytes is whole.
  void check_bytes(std::uint64_t bytes) const;
  template <typename Values>
  void read_as_they_are(std::size_t count, Values& values);

  ByteSource& source_;
  NpyHeader header_;
  std::size_t read_ = 0;  // values so far
};

// What numpy.save() writes before the values of such an array: a multiple of 64 bytes.
Bytes npy_header(ElementType element_type, std::span<const std::uint64_t> shape);

}  // namespace tersewire
