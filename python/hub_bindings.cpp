// What tersewire.torch.HubGroup calls.
#include <fmt/format.h>
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <tuple>
#include <utility>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/hub_end.h"
#include "python/hub_member.h"
#include "python/interruptible.h"
#include "tersewire/error.h"

namespace tersewire::python {

namespace py = pybind11;

HubEnd::HubEnd(std::string hub, std::optional<int> rank, int ranks, const GrpcSecurity& security,
               const WaitLimits& limits, std::string direct)
    : hub_("the hub at " + hub), rank_(rank ? *rank : certified_rank(security)), ranks_(ranks) {
  open_calls(interruptible([hub = std::move(hub), rank = rank_, ranks, security, limits,
                            direct = std::move(direct)] {
               return join_grpc_network(hub, rank, ranks, security, limits, direct);
             }),
             limits);
}

HubEnd::HubEnd(std::unique_ptr<Transport> network, const WaitLimits& limits, std::string hub)
    : hub_(std::move(hub)), rank_(network->rank()), ranks_(network->size()) {
  open_calls(std::move(network), limits);
}

void HubEnd::open_calls(std::unique_ptr<Transport> network, const WaitLimits& limits) {
  end_ = std::make_shared<SharedEnd>(std::move(network));
  lane_ = SharedEnd::open(end_, RankCalls::kLongestMessage);
  calls_ = std::make_unique<RankCalls>(*lane_, limits, hub_);
}

RankCalls& HubEnd::calls() {
  if (!calls_) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("rank {} has left {}; close the group after the last step", rank_, hub_));
  }
  return *calls_;
}

std::string HubEnd::interruption() const {
  return fmt::format("rank {} was interrupted; start every rank again", rank_);
}

std::vector<Bytes> HubEnd::gather(ByteView own) {
  RankCalls& calls = this->calls();
  return interruptible([&] { return calls.gather(own); }, [&] { lane_->abort(interruption()); });
}

void HubEnd::broadcast(int root, std::span<std::byte> data) {
  RankCalls& calls = this->calls();
  interruptible([&] { calls.broadcast(root, data); }, [&] { lane_->abort(interruption()); });
}

std::unique_ptr<Transport> HubEnd::open(std::size_t longest) {
  static_cast<void>(calls());  // throws where it was left
  auto lane = SharedEnd::open(end_, longest);
  for (const Bytes& told : gather({})) {
    if (told.empty()) continue;
    const std::string sentence = fmt::format(
        "a rank made another call than rank {}; make the same calls of tersewire.torch in "
        "the same order on every rank",
        rank_);
    lane->abort(sentence);
    throw Error(ErrorCode::kFailedPrecondition, sentence);
  }
  return lane;
}

HubEnd::~HubEnd() {
  try {
    close();
  } catch (...) {
    // A destructor has nobody to tell.
  }
}

void HubEnd::close() {
  const py::gil_scoped_release released;
  calls_.reset();
  lane_.reset();
  end_.reset();
}

namespace {

void bind_member(py::module_& module) {
  py::class_<HubMember, std::shared_ptr<HubMember>>(
      module, "_HubMember",
      R"(A rank of a hub's job whose ranks come and go.

One thread at a time, except for leave().)")
      .def(py::init([](const std::string& hub, const std::optional<std::string>& name,
                       std::uint64_t fingerprint, const std::string& certs, bool insecure,
                       std::chrono::milliseconds timeout, std::chrono::milliseconds busy,
                       std::size_t longest, const std::string& direct) {
             const GrpcSecurity security{.certificates = certs, .insecure = insecure};
             return std::make_shared<HubMember>(
                 GrpcMember::Settings{.hub = hub,
                                      .name = name ? *name : certified_name(security),
                                      .fingerprint = fingerprint,
                                      .security = security,
                                      .limits = {timeout, busy},
                                      .direct = direct},
                 longest);
           }),
           py::arg("hub"), py::arg("name"), py::arg("fingerprint"), py::arg("certs"),
           py::arg("insecure"), py::arg("timeout"), py::arg("busy"), py::arg("longest"),
           py::arg("direct"))
      .def("join", &HubMember::join,
           "The end of the next generation's network; None where the job is done or was left.")
      .def_property_readonly("generation",
                             [](const HubMember& member) { return member.list().generation; })
      .def_property_readonly(
          "members",
          [](const HubMember& member) {
            std::vector<std::tuple<std::string, std::uint64_t, bool>> members;
            for (const MemberEntry& entry : member.list().members) {
              members.emplace_back(entry.name, entry.incarnation,
                                   members.size() < member.list().workers);
            }
            return members;
          },
          "(name, number of its process, whether it is a rank or only hands over), by rank.")
      .def_property_readonly("is_last", [](const HubMember& member) { return member.list().last; })
      .def_property_readonly("reason", [](const HubMember& member) { return member.list().reason; })
      .def_property_readonly(
          "begun_with",
          [](const HubMember& member) -> std::optional<std::uint64_t> {
            const Boundary& base = member.list().base;
            return base.generation > 0 ? std::optional(base.step) : std::nullopt;
          },
          "The step after which the generation continues; None at the beginning.")
      .def_property_readonly("had_it", &HubMember::had_it, "Whether this rank has that state.")
      .def("elems_of", &HubMember::elems_of, py::arg("name"),
           "How many values under this name are the same on all ranks at the start.")
      .def(
          "begin_with",
          [](const HubMember& member, const std::string& name, const py::object& values) {
            const ArrayArgument array(values, "values", Access::kWrite);
            member.begin_with(name, array.floats());
          },
          py::arg("name"), py::arg("values"), "Fills as many with them.")
      .def("goes_on", &HubMember::goes_on, "Whether the generation continues, without waiting.")
      .def("closes", &HubMember::closes,
           "Whether it is over after the next state that all have, without waiting.")
      .def("settle", &HubMember::settle, "Waits until the hub has said so.")
      .def(
          "goes_on_after",
          [](HubMember& member, int code, const std::string& sentence) {
            return member.goes_on_after(static_cast<ErrorCode>(code), sentence);
          },
          py::call_guard<py::gil_scoped_release>(), py::arg("code"), py::arg("sentence"),
          "Reports an Error; returns whether the job may continue without the failed ranks.")
      .def("be_away", &HubMember::be_away, py::arg("away"),
           "Whether the script is outside all calls; if for too long, the others continue without "
           "it.")
      .def("leave", &HubMember::leave, "Leaves the job after the next state.")
      .def("finish", &HubMember::finish,
           "Says that all is done here, and waits until it is so on all ranks.")
      .def("close", &HubMember::close, "Sends the hub nothing more.");
}

}  // namespace

void bind_hub(py::module_& module) {
  py::class_<HubEnd>(module, "_HubEnd", R"(This process's end of the network of a hub's job.

One thread at a time.)")
      .def(py::init([](const std::string& hub, std::optional<int> rank, int ranks,
                       const std::string& certs, bool insecure, std::chrono::milliseconds timeout,
                       const std::string& direct) {
             return std::make_unique<HubEnd>(
                 hub, rank, ranks, GrpcSecurity{.certificates = certs, .insecure = insecure},
                 WaitLimits{.deadline = timeout}, direct);
           }),
           py::arg("hub"), py::arg("rank"), py::arg("ranks"), py::arg("certs"), py::arg("insecure"),
           py::arg("timeout"), py::arg("direct"))
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
  bind_member(module);
}

}  // namespace tersewire::python
