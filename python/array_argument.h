// Arguments that hold numbers, as spans over their own memory: whatever has the buffer protocol
// (numpy's arrays, bytes, memoryview) or DLPack (torch's tensors, of any version). Nothing is
// copied.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tersewire/bytes.h"

namespace tersewire::python {

namespace py = pybind11;

// Throws kInvalidArgument.
[[noreturn]] void refuse(const std::string& sentence);

enum class Access : std::uint8_t { kRead, kWrite };

// "(3, 4)", "(5,)", as Python writes a shape.
std::string shape_text(std::span<const std::uint64_t> shape);

// Whether two stretches of memory share a byte.
bool overlap(ByteView a, ByteView b);

// Holds on to an argument's memory, and so keeps it from being freed or moved, as long as it lives.
// Made, moved and destroyed under the GIL; what the spans show is read and written without it.
class ArrayArgument {
 public:
  // Throws kInvalidArgument, calling the argument by `name`, where it is no array, not contiguous
  // in C order, not on the CPU, or read-only though it is to be written.
  ArrayArgument(const py::object& argument, std::string name, Access access = Access::kRead);
  ~ArrayArgument();
  ArrayArgument(const ArrayArgument&) = delete;
  ArrayArgument& operator=(const ArrayArgument&) = delete;

  [[nodiscard]] std::size_t elems() const;
  // Throws kInvalidArgument where the shape is another.
  void check_shape(std::span<const std::uint64_t> shape) const;

  // Which of the spans below fits.
  [[nodiscard]] bool is_float64() const { return type_ == "float64"; }
  // Throw kInvalidArgument, saying what to convert to, where the elements are of another type.
  [[nodiscard]] std::span<float> floats() const;
  [[nodiscard]] std::span<double> doubles() const;
  [[nodiscard]] std::span<std::int32_t> ints() const;
  // The memory, whatever the elements are.
  [[nodiscard]] ByteView bytes() const;

 private:
  void take_buffer(const py::object& argument, Access access);
  void take_dlpack(const py::object& argument, Access access);
  template <typename T>
  [[nodiscard]] std::span<T> values(const char* type) const;

  std::string name_;
  Py_buffer buffer_{};  // without an object where the argument came by DLPack
  py::object capsule_;  // frees what DLPack lent
  void* data_ = nullptr;
  std::string type_;
  std::size_t item_bytes_ = 0;
  std::vector<std::uint64_t> shape_;
};

}  // namespace tersewire::python
