// What tersewire.torch.HubGroup calls.
#include <fmt/format.h>
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <utility>

#include "python/bindings.h"
#include "python/hub_end.h"
#include "python/interruptible.h"
#include "tersewire/error.h"

namespace tersewire::python {

namespace py = pybind11;

HubEnd::HubEnd(std::string hub, std::optional<int> rank, int ranks, const GrpcSecurity& security,
               const WaitLimits& limits)
    : hub_(std::move(hub)), rank_(rank ? *rank : certified_rank(security)), ranks_(ranks) {
  end_ = std::make_shared<SharedEnd>(
      interruptible([hub = hub_, rank = rank_, ranks, security, limits] {
        return join_grpc_network(hub, rank, ranks, security, limits);
      }));
  lane_ = SharedEnd::open(end_, RankCalls::kLongestMessage);
  calls_ = std::make_unique<RankCalls>(*lane_, limits, "the hub at " + hub_);
}

RankCalls& HubEnd::calls() {
  if (!calls_) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("rank {} has left the hub at {}; close the group after the last step",
                            rank_, hub_));
  }
  return *calls_;
}

std::vector<Bytes> HubEnd::gather(ByteView own) {
  RankCalls& calls = this->calls();
  return interruptible([&] { return calls.gather(own); },
                       [&] { lane_->abort(fmt::format("rank {} was interrupted", rank_)); });
}

void HubEnd::broadcast(int root, std::span<std::byte> data) {
  RankCalls& calls = this->calls();
  interruptible([&] { calls.broadcast(root, data); },
                [&] { lane_->abort(fmt::format("rank {} was interrupted", rank_)); });
}

std::unique_ptr<Transport> HubEnd::open(std::size_t longest) {
  static_cast<void>(calls());  // throws where it was left
  auto lane = SharedEnd::open(end_, longest);
  for (const Bytes& told : gather({})) {
    if (told.empty()) continue;
    const std::string sentence = fmt::format(
        "a rank is not where rank {} is in its script; make the same calls of tersewire.torch in "
        "the same order on every rank",
        rank_);
    lane->abort(sentence);
    throw Error(ErrorCode::kFailedPrecondition, sentence);
  }
  return lane;
}

void HubEnd::close() {
  const py::gil_scoped_release released;
  calls_.reset();
  lane_.reset();
  end_.reset();
}

void bind_hub(py::module_& module) {
  py::class_<HubEnd>(module, "_HubEnd", R"(This process's end of the network of a hub's job.

One thread at a time.)")
      .def(py::init([](const std::string& hub, std::optional<int> rank, int ranks,
                       const std::string& certs, bool insecure, std::chrono::milliseconds timeout) {
             return std::make_unique<HubEnd>(
                 hub, rank, ranks, GrpcSecurity{.certificates = certs, .insecure = insecure},
                 WaitLimits{.deadline = timeout});
           }),
           py::arg("hub"), py::arg("rank"), py::arg("ranks"), py::arg("certs"), py::arg("insecure"),
           py::arg("timeout"))
      .def_property_readonly("rank", &HubEnd::rank)
      .def_property_readonly("ranks", &HubEnd::size)
      .def(
          "gather",
          [](HubEnd& end, const py::bytes& own) {
            const std::string_view text = own;
            std::vector<py::bytes> told;
            for (const Bytes& bytes : end.gather(std::as_bytes(std::span(text)))) {
              told.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            }
            return told;
          },
          py::arg("own"), "What every rank says, by rank; 1 MiB each at most.")
      .def(
          "broadcast",
          [](HubEnd& end, int root, const py::buffer& data) {
            const py::buffer_info info = data.request(true);
            if (info.itemsize != 1 || info.ndim != 1 || info.strides[0] != 1) {
              throw Error(ErrorCode::kInvalidArgument,
                          "what is broadcast must be bytes in one piece; pass an array of uint8");
            }
            end.broadcast(root,
                          {static_cast<std::byte*>(info.ptr), static_cast<std::size_t>(info.size)});
          },
          py::arg("root"), py::arg("data"), "Fills bytes, as many on every rank, with one's.")
      .def("close", &HubEnd::close, "Leaves the hub, once the exchanges over it are closed.");
}

}  // namespace tersewire::python
