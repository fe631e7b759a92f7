// DryRun, which tersewire.torch.dry_run() feeds with a model's gradients.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "tersewire/dry_run.h"

namespace tersewire::python {
namespace {

py::list dicts_of(const std::vector<DryRunRow>& rows) {
  py::list list;
  for (const DryRunRow& row : rows) {
    py::dict entry;
    entry["tensor"] = row.tensor;
    entry["codec"] = row.codec;
    if (!row.used.empty()) entry["used"] = row.used;
    entry["looks"] = row.looks;
    entry["bits_per_value"] = row.bits;
    entry["error"] = row.error;
    entry["residual"] = row.residual;
    entry["encode_seconds_per_value"] = row.encode_seconds;
    entry["decode_seconds_per_value"] = row.decode_seconds;
    list.append(entry);
  }
  return list;
}

void look(DryRun& run, std::size_t tensor, std::uint64_t step, const py::object& gradient) {
  const ArrayArgument values(gradient, "gradient");
  const auto floats = values.floats();
  const py::gil_scoped_release released;
  run.look(tensor, step, floats);
}

}  // namespace

void bind_dry_run(py::module_& module) {
  py::class_<DryRun>(module, "_DryRun", "tersewire/dry_run.h says what it does.")
      .def(
          py::init<std::vector<TensorInfo>, std::vector<std::string>, std::string, std::uint64_t>(),
          py::arg("tensors"), py::arg("codecs"), py::arg("policy"), py::arg("seed"))
      .def("is_due", &DryRun::is_due, py::arg("tensor"), py::arg("step"),
           "Whether look() would look at this tensor in this step.")
      .def("look", &look, py::arg("tensor"), py::arg("step"), py::arg("gradient"),
           "Of every tensor in every step: float32, contiguous, on the CPU.")
      .def(
          "rows", [](const DryRun& run) { return dicts_of(run.rows()); },
          "Of each tensor in turn the codecs.")
      .def(
          "totals", [](const DryRun& run) { return dicts_of(run.totals()); },
          "Of all tensors together, by codec.")
      .def(
          "table", [](const DryRun& run) { return dry_run_table(run.findings()); },
          "Both as text, for people.")
      .def_property_readonly("share", &DryRun::share, "Of the time since it was made.");
}

}  // namespace tersewire::python
