// What tersewire.torch calls: the worker of a job that takes means in the same step, over TCP or a
// hub.
#include <fmt/format.h>
#include <pybind11/chrono.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/array_argument.h"
#include "python/auto_codec.h"
#include "python/bindings.h"
#include "python/hub_end.h"
#include "python/hub_member.h"
#include "python/interruptible.h"
#include "python/payload.h"
#include "tersewire/communicator.h"
#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "tersewire/state.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"
#include "trainer/checkpoint.h"
#include "trainer/codec_chooser.h"
#include "trainer/decisions_json.h"
#include "trainer/exchange_pieces.h"
#include "trainer/outer_optimizer.h"

namespace tersewire::python {
namespace {

namespace py = pybind11;

// A tensor, and its first value in a bucket.
using Stretch = std::pair<std::size_t, std::size_t>;
using PartValues = std::vector<std::vector<float>>;

Job make_job(const std::vector<TensorInfo>& tensors, const std::string& exchange, int workers,
             const std::string& codec, const std::string& policy, std::uint64_t seed,
             std::uint64_t warm_up_steps, std::chrono::milliseconds deadline,
             std::chrono::milliseconds progress_limit, bool updates) {
  Job job;
  job.tensors = tensors;
  job.exchange = exchange;
  job.workers = workers;
  const ExchangeTraits& traits = exchange_traits(exchange);
  if (traits.shards) job.servers = Job::kColocated;
  job.push_codec = job.pull_codec = codec;
  job.policy = policy;
  job.seed = seed;
  job.warm_up_steps = warm_up_steps;
  job.checksum_steps = 0;  // the parameters are the application's
  job.deadline = deadline;
  job.progress_limit = progress_limit;
  const bool servers_own = traits.shards && !traits.workers_own_model;
  if (servers_own != updates || traits.averages_weights ||
      !(servers_own || traits.workers_own_model)) {
    refuse(
        fmt::format("exchange {} has no mean gradient of a step; use gradient-server, all-gather "
                    "or ring{}",
                    exchange, servers_own ? ", or DistributedOptimizer()" : ""));
  }
  if (codec == trainer::kAutoCodec) trainer::choose_among_codecs(job);
  static_cast<void>(server_nodes(job));  // throws for a job that makes no sense
  return job;
}

// Of their JSON.
trainer::CodecDecisions decisions_of(const std::string& json) {
  try {
    return trainer::decisions_in_json(nlohmann::json::parse(json, nullptr, false));
  } catch (const Error& error) {
    refuse(fmt::format("these are not decisions on codecs: {}", error.what()));
  }
}

// On every rank, though rank 0 alone goes by them: throws where it would.
void check_decisions(Job job, const std::optional<trainer::CodecDecisions>& replay) {
  const auto ends = make_in_process_network(1);
  const AutoCodec rank_0(job, *ends.front(), {}, replay, {}, true);
}

// Whatever is in one message of the job, all of its parts would be as long at most.
std::size_t longest_message(const Job& job) {
  constexpr std::size_t kFrameBytes = 32;  // beside its payload, and the message's head
  const auto codecs = choose_codecs(job.policy, job.push_codec, job.tensors);
  std::size_t bytes = 1 << 16;
  for (const Part& part : job_parts(job)) {
    bytes += kFrameBytes + std::max(sizeof(float) * part.elems,
                                    codecs[part.tensor]->max_encoded_bytes(part.elems));
  }
  return bytes;
}

// By tensor: as many values as it has, 0 where there are none, or none at all.
PartValues by_tensor(const Job& job, const PartValues& values) {
  PartValues tensors(job.tensors.size());
  for (const Part& part : job_parts(job)) {
    if (values[part.number].empty()) continue;
    std::vector<float>& tensor = tensors[part.tensor];
    tensor.resize(job.tensors[part.tensor].elems());
    std::ranges::copy(values[part.number],
                      tensor.begin() + static_cast<std::ptrdiff_t>(part.begin));
  }
  return tensors;
}

// The same by the names of tensors.
py::dict by_name(const Job& job, const PartValues& values) {
  const PartValues tensors = by_tensor(job, values);
  py::dict named;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].empty()) continue;
    named[py::str(job.tensors[i].name)] = numpy_array(tensors[i]);
  }
  return named;
}

// The inverse, of the parts that `kept` says.
template <typename Kept>
PartValues by_part(const Job& job, const std::vector<Part>& parts, const py::dict& named,
                   const Kept& kept) {
  PartValues values(parts.size());
  for (const auto& [name, array] : named) {
    const auto text = py::cast<std::string>(name);
    const auto tensor = std::ranges::find(job.tensors, text, &TensorInfo::name);
    if (tensor == job.tensors.end()) {
      refuse("the state has a residual of '" + text +
             "', which this model does not have; load the state of the same model");
    }
    const ArrayArgument argument(py::reinterpret_borrow<py::object>(array),
                                 "the residual of '" + text + "'");
    const std::span<const float> residual = argument.floats();
    if (residual.size() != tensor->elems()) {
      refuse(
          fmt::format("the state has a residual of '{}' with {} values, and this model's has "
                      "{}; load the state of the same model",
                      text, residual.size(), tensor->elems()));
    }
    for (const Part& part : parts) {
      if (&job.tensors[part.tensor] != &*tensor || !kept(part)) continue;
      const auto run = residual.subspan(part.begin, part.elems);
      values[part.number].assign(run.begin(), run.end());
    }
  }
  return values;
}

void no_update(const Part& /*part*/, std::span<const float> /*mean*/, std::span<float> /*delta*/) {
  throw Error(ErrorCode::kInternal, "means were pulled");
}

// An array over memory that is there as long as the call.
py::array_t<float> view(std::span<const float> values) {
  return {{values.size()}, {sizeof(float)}, values.data(), py::none()};
}

// As a job's, for a function of a part's number and two arrays; it must outlive the job's worker.
Update update_of(const py::function& function) {
  if (!function) return no_update;
  return [&function](const Part& part, std::span<const float> mean, std::span<float> change) {
    const py::gil_scoped_acquire acquired;
    try {
      function(part.number, view(mean), view(change));
    } catch (const py::error_already_set& error) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("the optimizer's step failed: {}: {}",
                              py::str(error.type().attr("__name__")).cast<std::string>(),
                              py::str(error.value()).cast<std::string>()));
    }
  };
}

// What the node of this rank keeps when the job begins: which residuals there are. Throws where it
// cannot go on from `resume`.
NodeState first_state(const Job& job, int rank, const NodeState* resume = nullptr) {
  const auto ends = make_in_process_network(job.workers);
  return make_communicator(job, *ends.at(static_cast<std::size_t>(rank)), no_update, nullptr,
                           resume)
      ->state();
}

// Whether a tensor's parts are: they have one codec.
bool is_followed(const Job& job, const std::vector<bool>& followed, std::size_t tensor) {
  const std::vector<Part> parts = job_parts(job);
  const auto first = std::ranges::find(parts, tensor, &Part::tensor);
  return first != parts.end() && followed[first->number];
}

// The state of a node of a job with other codecs, or another exchange, in which nothing is lost,
// except what a server owed where differences are sent to no server.
NodeState moved(const NodeState& state, const Job& from, const Job& to, int rank) {
  NodeState now = first_state(to, rank);
  now.step = state.step;
  const std::vector<bool> followed = followed_parts(from);
  const std::vector<bool> follows = followed_parts(to);
  const PartValues pushed = by_tensor(from, state.pushed);
  const PartValues pulled = by_tensor(from, state.pulled);
  const auto add = [](std::vector<float>& sums, const Part& part, const std::vector<float>& values,
                      int times) {
    for (std::size_t i = 0; i < sums.size() && !values.empty(); ++i) {
      sums[i] += static_cast<float>(times) * values[part.begin + i];
    }
  };
  for (const Part& part : job_parts(to)) {
    std::vector<float>& kept = now.pushed[part.number];
    std::vector<float>& served = now.pulled[part.number];
    // Workers owe nothing where differences are sent, which begin anew.
    const bool owed = !is_followed(from, followed, part.tensor);
    const bool owes = owed && !pushed[part.tensor].empty();
    if (kept.empty() && (owes || !pulled[part.tensor].empty())) {
      refuse(
          "tensor '" + to.tensors[part.tensor].name +
          "' has a residual that is still to be sent, and its new codec keeps none; use one that "
          "does, with ef=on");
    }
    if (owed && !follows[part.number]) add(kept, part, pushed[part.tensor], 1);
    // A server's is of the mean. What is followed has no place for it.
    if (!served.empty()) {
      add(served, part, pulled[part.tensor], 1);
    } else if (!follows[part.number]) {
      add(kept, part, pulled[part.tensor], to.workers);
    }
  }
  return now;
}

// What state() returned, of one rank: (rank, step, pushed, pulled, followed).
using SavedState = std::tuple<int, std::uint64_t, py::dict, py::dict, py::dict>;

// One thread at a time takes steps, except that a second one may wait in mean(). Any thread may
// read counters, and close(), which ends the calls that wait.
class MeanWorker {
 public:
  MeanWorker(Job job, std::size_t threads, std::optional<trainer::CodecDecisions> replay,
             std::optional<double> bytes_a_day, bool overlaps, py::function update)
      : job_(std::move(job)),
        threads_(threads),
        replay_(std::move(replay)),
        bytes_a_day_(bytes_a_day),
        overlaps_(overlaps),
        update_(std::move(update)) {}
  ~MeanWorker() {
    if (::getpid() == made_by_) {
      close();
      return;
    }
    // In a process that forked, its threads are not.
    static_cast<void>(worker_.release());
    static_cast<void>(auto_.release());
    static_cast<void>(pool_.release());
    static_cast<void>(transport_.release());
  }
  MeanWorker(const MeanWorker&) = delete;
  MeanWorker& operator=(const MeanWorker&) = delete;

  void join(TcpMeeting& meeting, int rank, const std::vector<std::string>& addresses,
            const std::string& token) {
    const py::gil_scoped_release released;
    begin_over(meeting.join(rank, addresses, token, job_.wait_limits()));
  }

  // The same over a hub.
  void join_hub(HubEnd& hub) {
    std::unique_ptr<Transport> lane = hub.open(longest_message(job_));
    const py::gil_scoped_release released;
    over_hub_ = true;
    begin_over(std::move(lane));
  }

  // The same in a generation of ranks that come and go, after the state that it begins with.
  void go_on(HubEnd& hub, const HubMember& member) {
    {
      const py::gil_scoped_release released;
      const auto lock = alone();
      leave();
      held_.reset();
      job_.workers = hub.size();
      if (member.begun_with()) {
        trainer::JobCheckpoint checkpoint = *member.begun_with();
        checkpoint.servers = job_.servers;
        resume_ = trainer::ExchangeReader(checkpoint, job_).state_of(hub.rank());
      }
    }
    join_hub(hub);
  }
  // Keeps the state between two steps for those who go on from there, and by their names what all
  // ranks have alike.
  void hold(HubMember& member, const py::dict& alike) {
    trainer::NodeCheckpoint checkpoint;
    for (const auto& [name, values] : alike) {
      const auto text = py::cast<std::string>(name);
      const ArrayArgument array(py::reinterpret_borrow<py::object>(values), text);
      const std::span<const float> floats = array.floats();
      checkpoint.arrays[fmt::format("{}/{}", trainer::kSharedGroup, text)] = {
          .shape = {floats.size()}, .values = {floats.begin(), floats.end()}};
    }
    const py::gil_scoped_release released;
    held_ = kept();
    {
      const std::shared_lock lock(in_use_);
      if (!transport_) fail_closed();
      checkpoint.rank = transport_->rank();
    }
    checkpoint.step = held_->step;
    trainer::add_exchange(checkpoint, *held_, job_, job_parts(job_));
    member.hold(std::move(checkpoint), job_.push_codec);
  }
  // As state(), what hold() kept last; nothing before that.
  [[nodiscard]] std::optional<py::tuple> held_state() const {
    if (!held_) return std::nullopt;
    return as_tuple(*held_);
  }

  void begin_step(double stood_seconds) {
    wait([&](Communicator& worker) {
      const std::uint64_t step = worker.begin_step();
      if (auto_) auto_->begin_step(step, stood_seconds, worker.counters());
    });
  }
  void push(const py::object& values, const std::vector<Stretch>& stretches) {
    const ArrayArgument array(values, "values");
    const std::span<const float> all = array.floats();
    wait([&](Communicator& worker) {
      for (const Stretch& stretch : stretches) worker.push(stretch.first, run_of(all, stretch));
    });
  }
  void mean(const py::object& values, const std::vector<Stretch>& stretches) {
    const ArrayArgument array(values, "values", Access::kWrite);
    const std::span<float> all = array.floats();
    wait([&](Communicator& worker) {
      for (const Stretch& stretch : stretches) worker.mean(stretch.first, run_of(all, stretch));
    });
  }

  void give_back(const py::object& values, const std::vector<Stretch>& stretches) {
    const ArrayArgument array(values, "values");
    const std::span<const float> all = array.floats();
    const py::gil_scoped_release released;
    use([&](Communicator& worker) {
      for (const Stretch& stretch : stretches) {
        worker.give_back(stretch.first, run_of(all, stretch));
      }
    });
  }
  void say_skipped(std::uint64_t steps) {
    const py::gil_scoped_release released;
    use([&](Communicator& worker) { worker.say_skipped(steps); });
  }

  // (step, pushed, pulled, followed)
  py::tuple state() {
    NodeState state;
    {
      const py::gil_scoped_release released;
      state = kept();
    }
    return as_tuple(state);
  }
  // (tensor, first value, values, rank of the owner or -1) of each
  [[nodiscard]] std::vector<std::tuple<std::size_t, std::size_t, std::size_t, int>> parts() const {
    const std::vector<int> owners = part_servers(job_);
    std::vector<std::tuple<std::size_t, std::size_t, std::size_t, int>> all;
    for (const Part& part : job_parts(job_)) {
      all.emplace_back(part.tensor, part.begin, part.elems,
                       owners.empty() ? -1 : owners[part.number]);
    }
    return all;
  }
  // Whether the step it was in was begun, so that all ranks must join anew.
  [[nodiscard]] bool has_begun() const {
    return read([&] { return worker_ != nullptr; });
  }
  void load(int rank, int ranks, const std::vector<SavedState>& states,
            const std::string& decisions) {
    Job from = job_;
    from.workers = ranks;
    const std::vector<Part> parts = job_parts(from);
    const std::vector<int> owners = part_servers(from);
    std::vector<NodeState> nodes;
    for (const auto& [of_rank, step, pushed, pulled, followed] : states) {
      const auto serves = [&owners, rank = of_rank](const Part& part) {
        return !owners.empty() && owners[part.number] == rank;
      };
      NodeState node;
      node.step = step;
      node.pushed = by_part(from, parts, pushed, [](const Part&) { return true; });
      node.pulled = by_part(from, parts, pulled, serves);
      node.followed = by_part(from, parts, followed,
                              [&](const Part& part) { return owners.empty() || serves(part); });
      node.accumulated.resize(parts.size());
      node.shared.resize(parts.size());
      nodes.push_back(std::move(node));
    }
    if (ranks != job_.workers) nodes = redistribute(nodes, from, job_);
    const auto own = nodes.size() == 1 ? std::size_t{0} : static_cast<std::size_t>(rank);
    if (!job_.ladder) static_cast<void>(first_state(job_, rank, &nodes.at(own)));
    trainer::CodecDecisions decided = decisions_of(decisions);
    const py::gil_scoped_release released;
    const auto lock = alone();
    decided_ = std::move(decided);
    resume_ = std::move(nodes.at(own));
  }

  // Between steps: goes on as the job of another worker, which has not met anyone, with what this
  // one keeps. All ranks must join anew.
  void change(int rank, const MeanWorker& other) {
    const py::gil_scoped_release released;
    NodeState state;
    use([&](Communicator& worker) { state = moved(worker.state(), job_, other.job_, rank); });
    const auto lock = alone();
    leave();
    job_ = other.job_;
    threads_ = other.threads_;
    replay_ = other.replay_;
    bytes_a_day_ = other.bytes_a_day_;
    decided_.clear();
    resume_ = std::move(state);
  }

  // (bytes sent, bytes received, parts that were not finite, seconds in codecs, seconds waiting)
  [[nodiscard]] py::tuple counters() const {
    const Counts counts = read([&] { return all_counts(); });
    return py::make_tuple(counts.sent, counts.received, counts.not_finite, counts.codec_seconds,
                          counts.wait_seconds);
  }
  [[nodiscard]] std::vector<double> encoded_bytes() const {
    return read([&] { return all_counts().encoded_bytes; });
  }
  // With codec auto: all that was decided, on rank 0, and the codec of the last step.
  [[nodiscard]] std::string decisions() const {
    return trainer::decisions_json(
               read([&] { return auto_ && !resume_ ? auto_->decisions() : decided_; }))
        .dump();
  }
  std::vector<std::string> take_news() {
    return read([&] { return auto_ ? auto_->take_news() : std::vector<std::string>(); });
  }
  [[nodiscard]] std::string codec() const {
    return read([&] { return auto_ ? auto_->codec() : job_.push_codec; });
  }

  // Ends what others have of this worker; counters stay.
  void close() {
    const py::gil_scoped_release released;
    const auto lock = alone();
    leave();
  }
  void abort(const std::string& reason) {
    const py::gil_scoped_release released;
    const std::shared_lock lock(in_use_);
    if (transport_) transport_->abort(reason);
  }

 private:
  struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t not_finite = 0;
    double codec_seconds = 0;
    double wait_seconds = 0;
    std::vector<double> encoded_bytes;  // by tensor
  };

  // Those of networks that are gone, and of this one.
  [[nodiscard]] Counts all_counts() const {
    Counts counts = before_;
    if (transport_) {
      counts.sent += transport_->bytes_sent();
      counts.received += transport_->bytes_received();
    }
    counts.encoded_bytes.resize(job_.tensors.size(), 0.0);
    if (!worker_) return counts;
    const Counters& now = worker_->counters();
    counts.not_finite += now.not_finite_tensors;
    counts.codec_seconds += now.encode_seconds + now.decode_seconds;
    counts.wait_seconds += now.wait_seconds;
    const std::vector<double> encoded = worker_->encoded_bytes();
    std::ranges::transform(counts.encoded_bytes, encoded, counts.encoded_bytes.begin(),
                           std::plus<>());
    return counts;
  }
  [[noreturn]] static void fail_closed() {
    throw Error(ErrorCode::kFailedPrecondition,
                "the exchange of these gradients is closed; close it after the last step");
  }
  // For a thread with the GIL, which whoever holds the lock may need.
  template <typename Read>
  std::invoke_result_t<Read> read(const Read& calls) const {
    const py::gil_scoped_release released;
    const std::shared_lock lock(in_use_);
    return calls();
  }
  // Makes calls of the worker, which no other thread deletes meanwhile; without the GIL.
  template <typename Calls>
  void use(const Calls& calls) {
    std::shared_lock lock(in_use_);
    while (!worker_) {
      lock.unlock();
      {
        const std::unique_lock making(in_use_);
        make();
      }
      lock.lock();
    }
    calls(*worker_);
  }
  // The same for calls that may wait for other ranks. Those of a hub's job may do so for long.
  template <typename Calls>
  void wait(const Calls& calls) {
    struct Counted {
      std::atomic<int>& calls;
      explicit Counted(std::atomic<int>& all) : calls(all) { ++calls; }
      ~Counted() { --calls; }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
    };
    const auto waiting = [&] {
      const Counted counted(waiting_);
      use(calls);
    };
    if (over_hub_) {
      interruptible(waiting, [&] { abort_as("was interrupted"); });
    } else {
      const py::gil_scoped_release released;
      waiting();
    }
  }
  // Until no other thread uses the worker: ends calls that wait.
  [[nodiscard]] std::unique_lock<std::shared_mutex> alone() {
    if (waiting_ > 0) abort_as("closed its exchange within a step");
    return std::unique_lock(in_use_);
  }
  // `what` this rank did.
  void abort_as(const char* what) {
    const std::shared_lock lock(in_use_);
    if (transport_) transport_->abort(fmt::format("rank {} {}", transport_->rank(), what));
  }
  void begin_over(std::unique_ptr<Transport> transport) {
    const auto lock = alone();
    if (threads_ > 1) pool_ = std::make_unique<ThreadPool>(threads_);
    transport_ = std::move(transport);
  }
  [[nodiscard]] py::tuple as_tuple(const NodeState& state) const {
    return py::make_tuple(state.step, by_name(job_, state.pushed), by_name(job_, state.pulled),
                          by_name(job_, state.followed));
  }
  // Between two steps; before the first it makes nothing that could not be loaded over.
  NodeState kept() {
    {
      const std::shared_lock lock(in_use_);
      if (!worker_ && transport_) {
        return resume_ ? *resume_ : first_state(job_, transport_->rank());
      }
    }
    NodeState state;
    use([&](Communicator& worker) { state = worker.state(); });
    return state;
  }
  // Those that follow are called by whoever is alone.
  void leave() {
    Counts counts = all_counts();
    worker_.reset();  // its server may still send
    if (auto_ && !resume_) decided_ = auto_->decisions();
    auto_.reset();
    const Counts bytes = all_counts();
    counts.sent = bytes.sent;
    counts.received = bytes.received;
    before_ = std::move(counts);
    pool_.reset();
    transport_.reset();
  }
  // The worker, when it is first needed: until then a state may be loaded.
  void make() {
    if (worker_) return;
    if (!transport_) fail_closed();
    Job job = job_;
    if (job.ladder) {
      auto_ =
          std::make_unique<AutoCodec>(job, *transport_, decided_, replay_, bytes_a_day_, overlaps_);
    }
    worker_ = make_communicator(job, auto_ ? auto_->end() : *transport_, update_of(update_),
                                pool_.get(), resume_ ? &*resume_ : nullptr);
    resume_.reset();
  }
  template <typename T>
  std::span<T> run_of(std::span<T> values, const Stretch& stretch) const {
    const auto [tensor, begin] = stretch;
    const std::size_t elems = job_.tensors.at(tensor).elems();
    if (begin > values.size() || elems > values.size() - begin) {
      refuse(fmt::format("tensor '{}' ends beyond the {} values; pass the whole bucket",
                         job_.tensors[tensor].name, values.size()));
    }
    return values.subspan(begin, elems);
  }

  const pid_t made_by_ = ::getpid();
  mutable std::shared_mutex in_use_;  // whole: to change what is below
  std::atomic<int> waiting_ = 0;      // calls that may
  Job job_;
  std::size_t threads_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Transport> transport_;
  bool over_hub_ = false;
  std::optional<trainer::CodecDecisions> replay_;
  std::optional<double> bytes_a_day_;
  bool overlaps_;                    // exchanges with computation
  trainer::CodecDecisions decided_;  // before this network, or what was loaded
  py::function update_;
  std::optional<NodeState> resume_;
  std::optional<NodeState> held_;  // after the last step, among ranks that come and go
  std::unique_ptr<AutoCodec> auto_;
  std::unique_ptr<Communicator> worker_;
  Counts before_;
};

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

One thread at a time, but for mean(), in which a second one may wait.)")
      .def(py::init([](const std::vector<TensorInfo>& tensors, const std::string& exchange,
                       int workers, const std::string& codec, const std::string& policy,
                       std::uint64_t seed, std::uint64_t warm_up_steps,
                       std::chrono::milliseconds deadline, std::chrono::milliseconds progress_limit,
                       std::size_t threads, const std::optional<std::string>& replay,
                       const std::optional<std::string>& budget, bool overlaps,
                       const std::optional<py::function>& update) {
             std::optional<trainer::CodecDecisions> decisions;
             if (replay) decisions = decisions_of(*replay);
             Job job = make_job(tensors, exchange, workers, codec, policy, seed, warm_up_steps,
                                deadline, progress_limit, update.has_value());
             if (job.ladder) check_decisions(job, decisions);
             return std::make_unique<MeanWorker>(std::move(job), threads, std::move(decisions),
                                                 trainer::budget_bytes_a_day(budget.value_or("")),
                                                 overlaps, update.value_or(py::function()));
           }),
           py::arg("tensors"), py::arg("exchange"), py::arg("workers"), py::arg("codec"),
           py::arg("policy"), py::arg("seed"), py::arg("warm_up_steps"), py::arg("deadline"),
           py::arg("progress_limit"), py::arg("threads"), py::arg("replay"), py::arg("budget"),
           py::arg("overlaps"), py::arg("update"))
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
      .def("give_back", &MeanWorker::give_back, py::arg("values"), py::arg("stretches"),
           "Adds means that nobody applied to what is still to be sent.")
      .def("say_skipped", &MeanWorker::say_skipped, py::arg("steps"),
           "In how many steps gradients were thrown away: the same on all ranks.")
      .def("state", &MeanWorker::state,
           "(step, residuals pushed, residuals pulled, what is followed), by name.")
      .def("load", &MeanWorker::load, py::arg("rank"), py::arg("ranks"), py::arg("states"),
           py::arg("decisions"),
           "Goes on after states of a job of so many ranks, each as (rank, step, pushed, pulled, "
           "followed): this rank's own, or all in order.")
      .def("change", &MeanWorker::change, py::arg("rank"), py::arg("other"),
           "Goes on as the job of another, which has met nobody, with what this one keeps.")
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
