// The embedded images and text, as the trainer has them; tersewire/data.py makes arrays of them.
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "python/bindings.h"
#include "trainer/data/dataset.h"
#include "trainer/data/embedded_text.h"
#include "trainer/data/stroke_digits.h"

namespace tersewire::python {
namespace {

namespace py = pybind11;

template <typename T>
py::bytes bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

py::tuple digits(std::uint64_t seed, bool train) {
  const std::size_t first = train ? 0 : trainer::kEmbeddedTrainImages;
  const std::size_t count = train ? trainer::kEmbeddedTrainImages : trainer::kEmbeddedTestImages;
  trainer::Dataset data;
  {
    const py::gil_scoped_release released;
    data = trainer::generate_stroke_digits(seed, first, count);
  }
  return py::make_tuple(bytes_of(data.pixels), bytes_of(data.labels));
}

std::string text(std::uint64_t seed) {
  return trainer::generate_text(seed, trainer::kEmbeddedTextBytes);
}

}  // namespace

void bind_data(py::module_& module) {
  module.def("_digits", &digits, py::arg("seed"), py::arg("train"),
             "Pixels, a byte each, and labels, two bytes each.");
  module.def("_text", &text, py::arg("seed"), "The whole of it.");
}

}  // namespace tersewire::python
