#include "python/mean_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "python/array_argument.h"
#include "python/interruptible.h"
#include "python/mean_job.h"
#include "python/payload.h"
#include "tersewire/error.h"
#include "trainer/chooser/decisions_json.h"
#include "trainer/files/checkpoint.h"
#include "trainer/files/exchange_pieces.h"

namespace tersewire::python {
namespace {

// By part, as arrays by the names of tensors.
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

// An array over memory that is there as long as the call. By numpy itself: pybind11 before 2.12
// does not know numpy 2. It could be written through, as torch warns of arrays that cannot.
py::object view(std::span<const float> values) {
  static float nothing = 0;  // a memoryview of no values has an address, too
  auto* const memory = values.empty() ? &nothing : const_cast<float*>(values.data());
  return py::module_::import("numpy").attr("asarray")(
      py::memoryview::from_buffer(memory, {values.size()}, {sizeof(float)}));
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

}  // namespace

trainer::CodecDecisions decisions_of(const std::string& json) {
  try {
    return trainer::decisions_in_json(nlohmann::json::parse(json, nullptr, false));
  } catch (const Error& error) {
    refuse(fmt::format("these are not decisions on codecs: {}", error.what()));
  }
}

MeanWorker::~MeanWorker() {
  if (::getpid() == made_by_) {
    try {
      close();
    } catch (...) {
      // A destructor has nobody to tell.
    }
    return;
  }
  // In a process that forked, its threads are not.
  static_cast<void>(worker_.release());
  static_cast<void>(auto_.release());
  static_cast<void>(pool_.release());
  static_cast<void>(transport_.release());
}

void MeanWorker::join(TcpMeeting& meeting, int rank, const std::vector<std::string>& addresses,
                      const std::string& token) {
  const py::gil_scoped_release released;
  begin_over(meeting.join(rank, addresses, token, job_.wait_limits()));
}

void MeanWorker::join_hub(HubEnd& hub) {
  std::unique_ptr<Transport> lane = hub.open(longest_message(job_));
  const py::gil_scoped_release released;
  over_hub_ = true;
  begin_over(std::move(lane));
}

void MeanWorker::go_on(HubEnd& hub, const HubMember& member) {
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

void MeanWorker::hold(HubMember& member, const py::dict& alike) {
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

std::optional<py::tuple> MeanWorker::held_state() const {
  if (!held_) return std::nullopt;
  return as_tuple(*held_);
}

void MeanWorker::begin_step(double stood_seconds) {
  wait([&](Communicator& worker) {
    const std::uint64_t step = worker.begin_step();
    if (auto_) auto_->begin_step(step, stood_seconds, worker.counters());
  });
}

void MeanWorker::push(const py::object& values, const std::vector<Stretch>& stretches) {
  const ArrayArgument array(values, "values");
  const std::span<const float> all = array.floats();
  wait([&](Communicator& worker) {
    for (const Stretch& stretch : stretches) worker.push(stretch.first, run_of(all, stretch));
  });
}

void MeanWorker::mean(const py::object& values, const std::vector<Stretch>& stretches) {
  const ArrayArgument array(values, "values", Access::kWrite);
  const std::span<float> all = array.floats();
  wait([&](Communicator& worker) {
    for (const Stretch& stretch : stretches) worker.mean(stretch.first, run_of(all, stretch));
  });
}

void MeanWorker::undo(const std::vector<std::size_t>& tensors) {
  const py::gil_scoped_release released;
  use([&](Communicator& worker) {
    for (const std::size_t tensor : tensors) worker.undo(tensor);
  });
}

void MeanWorker::say_skipped(std::uint64_t steps) {
  const py::gil_scoped_release released;
  use([&](Communicator& worker) { worker.say_skipped(steps); });
}

py::tuple MeanWorker::state() {
  NodeState state;
  {
    const py::gil_scoped_release released;
    state = kept();
  }
  return as_tuple(state);
}

std::vector<std::tuple<std::size_t, std::size_t, std::size_t, int>> MeanWorker::parts() const {
  const std::vector<int> owners = part_servers(job_);
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t, int>> all;
  for (const Part& part : job_parts(job_)) {
    all.emplace_back(part.tensor, part.begin, part.elems,
                     owners.empty() ? -1 : owners[part.number]);
  }
  return all;
}

bool MeanWorker::has_begun() const {
  return read([&] { return worker_ != nullptr; });
}

void MeanWorker::load(int rank, int ranks, const std::vector<SavedState>& states,
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
    node.rank = of_rank;
    node.workers = ranks;
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

void MeanWorker::take_over(int rank, MeanWorker& other) {
  const py::gil_scoped_release released;
  resume_ = moved(other.kept(), other.job_, job_, rank);
}

void MeanWorker::change(const MeanWorker& other) {
  const py::gil_scoped_release released;
  const auto lock = alone();
  leave();
  job_ = other.job_;
  threads_ = other.threads_;
  replay_ = other.replay_;
  bytes_a_day_ = other.bytes_a_day_;
  decided_.clear();
  resume_ = other.resume_;
}

py::tuple MeanWorker::counters() const {
  const Counts counts = read([&] { return all_counts(); });
  return py::make_tuple(counts.sent, counts.received, counts.not_finite, counts.codec_seconds,
                        counts.wait_seconds);
}

std::vector<double> MeanWorker::encoded_bytes() const {
  return read([&] { return all_counts().encoded_bytes; });
}

std::string MeanWorker::decisions() const {
  return trainer::decisions_json(
             read([&] { return auto_ && !resume_ ? auto_->decisions() : decided_; }))
      .dump();
}

std::vector<std::string> MeanWorker::take_news() {
  return read([&] { return auto_ ? auto_->take_news() : std::vector<std::string>(); });
}

std::string MeanWorker::codec() const {
  return read([&] { return auto_ ? auto_->codec() : job_.push_codec; });
}

void MeanWorker::close() {
  const py::gil_scoped_release released;
  const auto lock = alone();
  leave();
}

void MeanWorker::abort(const std::string& reason) {
  const py::gil_scoped_release released;
  const std::shared_lock lock(in_use_);
  if (transport_) transport_->abort(reason);
}

MeanWorker::Counts MeanWorker::all_counts() const {
  Counts counts = before_;
  if (transport_) {
    counts.sent += transport_->bytes_sent();
    counts.received += transport_->bytes_received();
  }
  counts.encoded_bytes.resize(job_.tensors.size(), 0.0);
  if (!worker_) return counts;
  const Counters now = worker_->counters();
  counts.not_finite += now.not_finite_tensors;
  counts.codec_seconds += now.encode_seconds + now.decode_seconds;
  counts.wait_seconds += now.wait_seconds;
  const std::vector<double> encoded = worker_->encoded_bytes();
  std::ranges::transform(counts.encoded_bytes, encoded, counts.encoded_bytes.begin(),
                         std::plus<>());
  return counts;
}

void MeanWorker::fail_closed() {
  throw Error(ErrorCode::kFailedPrecondition,
              "the exchange of these gradients is closed; close it after the last step");
}

template <typename Read>
std::invoke_result_t<Read> MeanWorker::read(const Read& calls) const {
  const py::gil_scoped_release released;
  const std::shared_lock lock(in_use_);
  return calls();
}

template <typename Calls>
void MeanWorker::use(const Calls& calls) {
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

template <typename Calls>
void MeanWorker::wait(const Calls& calls) {
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

std::unique_lock<std::shared_mutex> MeanWorker::alone() {
  if (waiting_ > 0) abort_as("closed its exchange within a step");
  return std::unique_lock(in_use_);
}

void MeanWorker::abort_as(const char* what) {
  const std::shared_lock lock(in_use_);
  if (transport_)
    transport_->abort(fmt::format("rank {} {}; start every rank again", transport_->rank(), what));
}

void MeanWorker::begin_over(std::unique_ptr<Transport> transport) {
  const auto lock = alone();
  if (threads_ > 1) pool_ = std::make_unique<ThreadPool>(threads_);
  transport_ = std::move(transport);
}

py::tuple MeanWorker::as_tuple(const NodeState& state) const {
  return py::make_tuple(state.step, by_name(job_, state.pushed), by_name(job_, state.pulled),
                        by_name(job_, state.followed));
}

NodeState MeanWorker::kept() {
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

void MeanWorker::leave() {
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

void MeanWorker::make() {
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
std::span<T> MeanWorker::run_of(std::span<T> values, const Stretch& stretch) const {
  const auto [tensor, begin] = stretch;
  const std::size_t elems = job_.tensors.at(tensor).elems();
  if (begin > values.size() || elems > values.size() - begin) {
    refuse(fmt::format("tensor '{}' ends beyond the {} values; pass the whole bucket",
                       job_.tensors[tensor].name, values.size()));
  }
  return values.subspan(begin, elems);
}

}  // namespace tersewire::python
