// What tersewire.torch calls.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/mean_job.h"
#include "python/mean_worker.h"
#include "tersewire/transport.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/settings/outer_optimizer.h"

namespace tersewire::python {
namespace {

// On every rank, though rank 0 alone goes by them: throws where it would.
void check_decisions(Job job, const std::optional<trainer::CodecDecisions>& replay) {
  const auto ends = make_in_process_network(1);
  const AutoCodec rank_0(job, *ends.front(), {}, replay, {}, true);
}

}  // namespace

void bind_means(py::module_& module) {
  module.def("_default_outer", &trainer::default_outer, py::arg("local_updates"),
             "The outer optimizer for rounds of so many steps, where a job does not say.");
  module.def(
      "_outer_optimizer",
      [](const std::string& text) {
        const trainer::OuterOptimizer outer = trainer::outer_optimizer(text);
        return py::make_tuple(outer.nesterov, outer.learning_rate, outer.momentum);
      },
      py::arg("text"), "(nesterov, lr, momentum) of its text.");
  py::class_<TcpMeeting>(module, "_TcpMeeting", "Where ranks find each other.")
      .def(py::init<const std::string&>(), py::arg("host"))
      .def_property_readonly("address", &TcpMeeting::address);
  py::class_<MeanWorker>(module, "_MeanWorker", R"(A rank's end of an exchange of gradients.

One thread at a time, except for mean(), in which a second one may wait.)")
      .def(py::init([](const std::vector<TensorInfo>& tensors, const std::string& exchange,
                       int workers, const std::string& codec,
                       const std::optional<std::string>& pull_codec, const std::string& policy,
                       std::uint64_t seed, std::uint64_t warm_up_steps,
                       std::chrono::milliseconds deadline, std::chrono::milliseconds progress_limit,
                       std::size_t threads, const std::optional<std::string>& replay,
                       const std::optional<std::string>& budget, bool overlaps, bool undoable,
                       const std::optional<py::function>& update) {
             std::optional<trainer::CodecDecisions> decisions;
             if (replay) decisions = decisions_of(*replay);
             Job job;
             job.tensors = tensors;
             job.exchange = exchange;
             job.workers = workers;
             job.push_codec = codec;
             job.pull_codec = pull_codec.value_or(codec);
             job.policy = policy;
             job.seed = seed;
             job.warm_up_steps = warm_up_steps;
             job.deadline = deadline;
             job.progress_limit = progress_limit;
             job.undoable = undoable;
             job = mean_job(std::move(job), update.has_value());
             if (job.ladder) check_decisions(job, decisions);
             return std::make_unique<MeanWorker>(std::move(job), threads, std::move(decisions),
                                                 trainer::budget_bytes_a_day(budget.value_or("")),
                                                 overlaps, update.value_or(py::function()));
           }),
           py::arg("tensors"), py::arg("exchange"), py::arg("workers"), py::arg("codec"),
           py::arg("pull_codec"), py::arg("policy"), py::arg("seed"), py::arg("warm_up_steps"),
           py::arg("deadline"), py::arg("progress_limit"), py::arg("threads"), py::arg("replay"),
           py::arg("budget"), py::arg("overlaps"), py::arg("undoable"), py::arg("update"))
      .def("join", &MeanWorker::join, py::arg("meeting"), py::arg("rank"), py::arg("addresses"),
           py::arg("token"), "Meets the other ranks.")
      .def("join_hub", &MeanWorker::join_hub, py::arg("hub"), "The same over a hub.")
      .def("go_on", &MeanWorker::go_on, py::arg("hub"), py::arg("member"),
           "Meets those of another generation, and goes on after the state it begins with.")
      .def("hold", &MeanWorker::hold, py::arg("member"), py::arg("alike"),
           "Keeps the state between two steps, and what all ranks have alike, for others.")
      .def("held_state", &MeanWorker::held_state,
           "What hold() kept last, as state(); nothing before that.")
      .def("begin_step", &MeanWorker::begin_step, py::arg("stood_seconds"),
           "Once all means of the last have been taken; how long training stood still for them.")
      .def("push", &MeanWorker::push, py::arg("values"), py::arg("stretches"),
           "Encodes and sends gradients: stretches are (tensor, first value in `values`).")
      .def("mean", &MeanWorker::mean, py::arg("values"), py::arg("stretches"),
           "Waits for the means of what was pushed, which take its place.")
      .def("undo", &MeanWorker::undo, py::arg("tensors"),
           "Has what is kept of tensors be as before the step: nobody has applied their means.")
      .def("say_skipped", &MeanWorker::say_skipped, py::arg("steps"),
           "In how many steps gradients were thrown away: the same on all ranks.")
      .def("state", &MeanWorker::state,
           "(step, residuals pushed, residuals pulled, what is followed), by name.")
      .def("load", &MeanWorker::load, py::arg("rank"), py::arg("ranks"), py::arg("states"),
           py::arg("decisions"),
           "Goes on after states of a job of so many ranks, each as (rank, step, pushed, pulled, "
           "followed): this rank's own, or all in order.")
      .def("take_over", &MeanWorker::take_over, py::arg("rank"), py::arg("other"),
           "Before it meets anyone: goes on with what another keeps, which stays as it is.")
      .def("change", &MeanWorker::change, py::arg("other"),
           "Becomes another, which has taken over what this one keeps.")
      .def_property_readonly("parts", &MeanWorker::parts,
                             "(tensor, first value in it, values, rank of its owner or -1) each.")
      .def_property_readonly("has_begun", &MeanWorker::has_begun)
      .def_property_readonly("counters", &MeanWorker::counters)
      .def_property_readonly("encoded_bytes", &MeanWorker::encoded_bytes,
                             "Of each tensor, since the start.")
      .def_property_readonly("decisions", &MeanWorker::decisions,
                             "With codec auto, on rank 0, as JSON.")
      .def("take_news", &MeanWorker::take_news, "The sentences of decisions since the last call.")
      .def_property_readonly("codec", &MeanWorker::codec, "Of the last step.")
      .def("abort", &MeanWorker::abort, py::arg("reason"), "Ends the job on every rank.")
      .def("close", &MeanWorker::close, "Leaves the network; counters stay.");
}

}  // namespace tersewire::python
