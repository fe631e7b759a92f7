// The extension module tersewire._core: the public C++ interface with Python's types. Computing
// happens without the GIL.
#include <pybind11/pybind11.h>

#include <exception>

#include "python/bindings.h"
#include "tersewire/error.h"
#include "tersewire/thread_pool.h"

namespace tersewire::python {
namespace {

namespace py = pybind11;

// tersewire.Error with the code and the sentence. The rest is pybind11's: std::bad_alloc becomes a
// MemoryError.
void raise_error(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const py::object type = py::module_::import("tersewire._error").attr("Error");
    const py::object made = type(static_cast<int>(error.code()), error.what());
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

void bind_thread_pool(py::module_& module) {
  py::class_<ThreadPool>(module, "ThreadPool",
                         "Threads to compute with, for any number of encoders; one caller at a "
                         "time, others wait.\nBytes never depend on them.")
      .def(py::init<std::size_t>(), py::arg("threads"),
           "threads: how many run at once, the caller included; at least 1.")
      .def_property_readonly("threads", &ThreadPool::threads, "How many run at once.");
  module.def("_allowed_cores", &allowed_cores,
             "Cores that this process may use, by affinity and control groups.");
}

}  // namespace
}  // namespace tersewire::python

PYBIND11_MODULE(_core, module) {
  module.doc() = "What tersewire has in C++; the package names it.";
  module.attr("__version__") = TERSEWIRE_VERSION;
  pybind11::register_exception_translator(&tersewire::python::raise_error);
  tersewire::python::bind_thread_pool(module);
  tersewire::python::bind_payloads(module);
  tersewire::python::bind_codecs(module);
  tersewire::python::bind_hub(module);
  tersewire::python::bind_means(module);
  tersewire::python::bind_dry_run(module);
  tersewire::python::bind_probe(module);
  tersewire::python::bind_messages(module);
  tersewire::python::bind_data(module);
}
