// DryRun, which tersewire.torch.dry_run() feeds with a model's gradients.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "tersewire/dry_run.h"
#include "trainer/files/dry_json.h"

namespace tersewire::python {
namespace {

// Fed by hooks, which know of no step: one ends where a gradient comes again.
class HookedDryRun {
 public:
  HookedDryRun(const std::vector<TensorInfo>& tensors, const std::vector<std::string>& codecs,
               const std::string& policy, std::uint64_t seed)
      : run_(tensors, codecs, policy, seed), seen_(tensors.size()) {}

  // Of each gradient as it comes: whether it is to be looked at.
  bool takes(std::size_t tensor) {
    if (seen_.at(tensor)) end_step();
    seen_[tensor] = true;
    return run_.is_due(tensor, step_);
  }
  void look(std::size_t tensor, const py::object& gradient) {
    const ArrayArgument values(gradient, "gradient");
    const auto floats = values.floats();
    const py::gil_scoped_release released;
    run_.look(tensor, step_, floats);
  }

  [[nodiscard]] std::string json(double bits_per_second, double latency_seconds) const {
    return trainer::dry_json(run_.findings(), {.bits_per_second = bits_per_second,
                                               .latency_seconds = latency_seconds})
        .dump();
  }
  [[nodiscard]] std::string table() const { return dry_run_table(run_.findings()); }

 private:
  // A tensor that the step did not use had zeros; others would wait for its turn.
  void end_step() {
    const py::gil_scoped_release released;
    for (std::size_t tensor = 0; tensor < seen_.size(); ++tensor) {
      if (seen_[tensor] || !run_.is_due(tensor, step_)) continue;
      run_.look(tensor, step_, std::vector<float>(run_.tensors()[tensor].elems()));
    }
    ++step_;
    seen_.assign(seen_.size(), false);
  }

  DryRun run_;
  std::uint64_t step_ = 1;
  std::vector<bool> seen_;  // in this step, by tensor
};

}  // namespace

void bind_dry_run(py::module_& module) {
  py::class_<HookedDryRun>(module, "_DryRun", "tersewire/dry_run.h says what it does.")
      .def(py::init<const std::vector<TensorInfo>&, const std::vector<std::string>&,
                    const std::string&, std::uint64_t>(),
           py::arg("tensors"), py::arg("codecs"), py::arg("policy"), py::arg("seed"))
      .def("takes", &HookedDryRun::takes, py::arg("tensor"),
           "Of each gradient as it comes: whether look() is to look at it.")
      .def("look", &HookedDryRun::look, py::arg("tensor"), py::arg("gradient"),
           "float32, contiguous, on the CPU.")
      .def("json", &HookedDryRun::json, py::arg("rate_bits_per_second"), py::arg("latency_seconds"),
           "What dry.json holds.")
      .def("table", &HookedDryRun::table, "The same as text, for people.");
}

}  // namespace tersewire::python
