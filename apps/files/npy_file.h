// NumPy's .npy files, as far as gradients need them: little-endian f4 and f8 in C order, versions
// 1.0, 2.0 and 3.0. Bytes are checked before they are believed. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/message.h"

namespace tersewire {

// An .npy file's contents; `data` points into its bytes.
struct NpyArray {
  ElementType element_type = ElementType::kFloat32;
  std::vector<std::uint64_t> shape;
  std::size_t elems = 0;
  ByteView data;  // elems values, any alignment
};

// Reads a whole file. Throws kDataLoss where it is no .npy file or is cut or too long, and
// kInvalidArgument, saying how to save it instead, for arrays of other kinds than those above and
// for those that no frame can describe (above 32 dimensions or 2^40 elements).
NpyArray parse_npy(ByteView bytes);

// The values, those of f8 rounded to f32. Throws kInvalidArgument, naming the first, where a finite
// one is beyond what f32 holds.
Floats npy_floats(const NpyArray& array);

// The values; those of f4 are widened.
Doubles npy_doubles(const NpyArray& array);

// What numpy.save() writes before the values of such an array: a multiple of 64 bytes.
Bytes npy_header(ElementType element_type, std::span<const std::uint64_t> shape);

}  // namespace tersewire
