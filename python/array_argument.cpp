#include "python/array_argument.h"

#include <dlpack/dlpack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::python {
namespace {

constexpr int kBitsPerByte = 8;

// DLPack 1's DLManagedTensorVersioned, which older headers lack.
constexpr std::uint32_t kDlpackMajor = 1;
constexpr std::uint64_t kDlpackReadOnly = 1;
struct VersionedTensor {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  DLTensor tensor;
};

// What numpy calls a type of the buffer protocol; the format itself where it is none of these.
std::string type_of_format(std::string_view format, std::size_t item_bytes) {
  if (!format.empty() && std::string_view("@=<").find(format.front()) != std::string_view::npos) {
    format.remove_prefix(1);
  }
  if (format.size() != 1) return std::string(format);
  const auto is_one_of = [&](std::string_view set) { return set.find(format) != set.npos; };
  const std::size_t bits = kBitsPerByte * item_bytes;
  if (is_one_of("efd")) return fmt::format("float{}", bits);
  if (is_one_of("bhilqn")) return fmt::format("int{}", bits);
  if (is_one_of("BHILQN")) return fmt::format("uint{}", bits);
  return std::string(format);
}

std::string type_of_dlpack(const DLDataType& type) {
  constexpr std::array kNames{"int", "uint", "float", "opaque", "bfloat", "complex"};
  const char* name = type.code < kNames.size() ? kNames[type.code] : "unknown";
  return type.lanes == 1 ? fmt::format("{}{}", name, type.bits)
                         : fmt::format("{}{}x{}", name, type.bits, type.lanes);
}

// Whether elements follow each other in C order. Sides of length 1 may have any stride.
bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

void check_on_cpu(const py::object& argument, const std::string& name) {
  const auto device = argument.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  if (device.first == kDLCPU || device.first == kDLCUDAHost) return;
  const std::string place = py::hasattr(argument, "device")
                                ? py::str(argument.attr("device")).cast<std::string>()
                                : fmt::format("DLPack's device {}", device.first);
  refuse(fmt::format("{} is on {}; pass it on the CPU, as torch's cpu() gives it", name, place));
}

// A producer from before DLPack 1.0 takes no max_version.
py::object dlpack_capsule(const py::object& argument) {
  const py::object lend = argument.attr("__dlpack__");
  try {
    return lend(py::arg("max_version") = py::make_tuple(kDlpackMajor, 0));
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return lend();
}

// Of a capsule from before DLPack 1.0, or from 1.x.
const DLTensor& lent_tensor(const py::object& capsule, const std::string& name, bool& is_read_only) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") == 0) {
    auto* const lent = PyCapsule_GetPointer(capsule.ptr(), "dltensor");
    if (lent == nullptr) throw py::error_already_set();
    return static_cast<DLManagedTensor*>(lent)->dl_tensor;
  }
  const auto& lent = *static_cast<VersionedTensor*>(
      PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
  if (lent.major != kDlpackMajor) {
    refuse(fmt::format("{} comes by DLPack {}.{}; pass it from a library with version {}", name,
                       lent.major, lent.minor, kDlpackMajor));
  }
  is_read_only = (lent.flags & kDlpackReadOnly) != 0;
  return lent.tensor;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

std::string shape_text(std::span<const std::uint64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

bool overlap(ByteView a, ByteView b) {
  const auto before = [](ByteView first, ByteView second) {
    return std::greater_equal<>()(second.data(), first.data() + first.size());
  };
  return !a.empty() && !b.empty() && !before(a, b) && !before(b, a);
}

ArrayArgument::ArrayArgument(const py::object& argument, std::string name, Access access)
    : name_(std::move(name)) {
  try {
    if (PyObject_CheckBuffer(argument.ptr()) != 0) {
      take_buffer(argument, access);
    } else if (py::hasattr(argument, "__dlpack__")) {
      take_dlpack(argument, access);
    } else {
      refuse(fmt::format("{} is a {}; pass an array of numpy's or a CPU tensor of torch's", name_,
                         Py_TYPE(argument.ptr())->tp_name));
    }
  } catch (const py::error_already_set& error) {
    // Ctrl-C and a lack of memory are no fault of the argument.
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    // Its owner has the reason: a tensor that requires a gradient, a sparse one.
    refuse(fmt::format("{} cannot be used in place: {}", name_,
                       first_line(py::str(error.value()).cast<std::string>())));
  }
}

ArrayArgument::~ArrayArgument() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void ArrayArgument::take_buffer(const py::object& argument, Access access) {
  if (PyObject_GetBuffer(argument.ptr(), &buffer_, PyBUF_FULL_RO) != 0) {
    throw py::error_already_set();
  }
  // The destructor of a class whose constructor throws does not run.
  const auto give_up = [this](const char* why) {
    PyBuffer_Release(&buffer_);
    refuse(fmt::format("{} {}", name_, why));
  };
  if (PyBuffer_IsContiguous(&buffer_, 'C') == 0) {
    give_up("is not contiguous; pass a copy, numpy.ascontiguousarray()");
  }
  if (access == Access::kWrite && buffer_.readonly != 0) {
    give_up("is read-only; pass an array that can be written");
  }
  data_ = buffer_.buf;
  item_bytes_ = static_cast<std::size_t>(buffer_.itemsize);
  type_ = type_of_format(buffer_.format != nullptr ? buffer_.format : "B", item_bytes_);
  shape_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
}

void ArrayArgument::take_dlpack(const py::object& argument, Access access) {
  check_on_cpu(argument, name_);
  // Left in its capsule, which frees it: nobody else gets to see the capsule.
  capsule_ = dlpack_capsule(argument);
  bool is_read_only = false;
  const DLTensor& tensor = lent_tensor(capsule_, name_, is_read_only);
  if (access == Access::kWrite && is_read_only) {
    refuse(fmt::format("{} is read-only; pass an array that can be written", name_));
  }
  if (!is_contiguous(tensor)) {
    refuse(
        fmt::format("{} is not contiguous; pass a copy, as torch's contiguous() gives it", name_));
  }
  data_ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  item_bytes_ = std::size_t{tensor.dtype.bits} * tensor.dtype.lanes / kBitsPerByte;
  type_ = type_of_dlpack(tensor.dtype);
  shape_.assign(tensor.shape, tensor.shape + tensor.ndim);
}

std::size_t ArrayArgument::elems() const {
  std::size_t elems = 1;
  for (const std::uint64_t side : shape_) elems *= side;
  return elems;
}

void ArrayArgument::check_shape(std::span<const std::uint64_t> shape) const {
  if (std::ranges::equal(shape_, shape)) return;
  refuse(fmt::format("{} has shape {} and the encoder was made for {}; pass a tensor of that shape",
                     name_, shape_text(shape_), shape_text(shape)));
}

template <typename T>
std::span<T> ArrayArgument::values(const char* type) const {
  if (type_ != type || item_bytes_ != sizeof(T)) {
    refuse(fmt::format("{} holds {}; convert it to {}", name_, type_, type));
  }
  if (elems() > 0 && reinterpret_cast<std::uintptr_t>(data_) % alignof(T) != 0) {
    refuse(
        fmt::format("{} does not begin at a multiple of {} bytes; pass a copy", name_, alignof(T)));
  }
  return {static_cast<T*>(data_), elems()};
}

std::span<float> ArrayArgument::floats() const { return values<float>("float32"); }
std::span<double> ArrayArgument::doubles() const { return values<double>("float64"); }
std::span<std::int32_t> ArrayArgument::ints() const { return values<std::int32_t>("int32"); }

ByteView ArrayArgument::bytes() const {
  return {static_cast<const std::byte*>(data_), elems() * item_bytes_};
}

}  // namespace tersewire::python
