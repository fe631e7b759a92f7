// What tersewire.torch.probe() calls.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "python/bindings.h"
#include "python/hub_end.h"
#include "python/interruptible.h"
#include "tersewire/probe.h"
#include "tersewire/transport.h"
#include "trainer/files/probe_json.h"

namespace tersewire::python {
namespace {

namespace py = pybind11;

// A rank's end of a network of its own.
class Prober {
 public:
  Prober(std::chrono::milliseconds deadline, std::chrono::milliseconds progress_limit)
      : limits_{deadline, progress_limit} {}

  void join(TcpMeeting& meeting, int rank, const std::vector<std::string>& addresses,
            const std::string& token) {
    const py::gil_scoped_release released;
    transport_ = meeting.join(rank, addresses, token, limits_);
  }
  void join_hub(HubEnd& hub) { transport_ = hub.open(kLongestProbeMessage); }

  // Leaves the network afterwards.
  Probe run() {
    Transport& end = *transport_;
    const Probe found = interruptible(
        [&] {
          try {
            return probe(end, limits_);
          } catch (const std::exception& error) {
            end.abort(error.what());
            throw;
          }
        },
        [&] {
          end.abort("rank " + std::to_string(end.rank()) +
                    " was interrupted; start every rank again");
        });
    const py::gil_scoped_release released;
    transport_.reset();
    return found;
  }

 private:
  WaitLimits limits_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

void bind_probe(py::module_& module) {
  py::class_<Prober>(module, "_Prober", "A rank's end of a probe. One thread at a time.")
      .def(py::init<std::chrono::milliseconds, std::chrono::milliseconds>(), py::arg("deadline"),
           py::arg("progress_limit"))
      .def("join", &Prober::join, py::arg("meeting"), py::arg("rank"), py::arg("addresses"),
           py::arg("token"), "Meets the other ranks.")
      .def("join_hub", &Prober::join_hub, py::arg("hub"), "The same over a hub.")
      .def(
          "run", [](Prober& prober) { return trainer::probe_json(prober.run()).dump(); },
          "What was measured, as JSON, on rank 0; the others answer. Once.");
}

}  // namespace tersewire::python
