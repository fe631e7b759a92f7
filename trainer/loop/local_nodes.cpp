#include "trainer/loop/local_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <span>
#include <system_error>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tersewire/error.h"
#include "tersewire/passing_transport.h"
#include "trainer/loop/codec_threads.h"
#include "trainer/loop/later_codec.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::trainer {
namespace {

// A checkpoint's fact that says which data it was.
constexpr const char* kDataFact = "data";

template <typename T>
ByteView bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::uint64_t checksum_of(const std::vector<T>& values, std::uint64_t seed = 0) {
  return XXH64(values.data(), values.size() * sizeof(T), seed);
}

// What all nodes must be started with alike.
std::uint64_t arguments_checksum(TrainConfig config, int servers, std::uint64_t resumed_after) {
  std::string text = fmt::format("{} {}", TERSEWIRE_VERSION, resumed_after);
  config.job.servers = servers;  // however it was said
  visit_settings(std::as_const(config), [&](const Setting& setting, const auto& member) {
    if (setting.scope == SettingScope::kNode) return;
    const std::string value = setting_value(member);
    text += fmt::format(" {}={}:{}", setting.key, value.size(), value);
  });
  return XXH64(text.data(), text.size(), 0);
}

WorkerReport report_of(const TrainWorker& worker) {
  WorkerReport report{.counters = worker.counters(),
                      .totals = worker.totals(),
                      .losses = worker.losses().size(),
                      .diverged_step = worker.loss_watch().diverged_step().value_or(0)};
  for (const double loss : worker.losses()) report.loss_sum += loss;
  return report;
}

// Runs every task in a thread of its own and waits for all; one that throws ends the job for the
// others. Throws the first exception that says what went wrong: those of nodes that were merely
// told to stop come after.
void run_all(const std::vector<std::function<void()>>& tasks, Transport& network) {
  std::vector<std::exception_ptr> errors(tasks.size());
  std::vector<std::thread> threads;
  const auto run_one = [&](std::size_t i) {
    try {
      hold_library_threads();
      tasks[i]();
    } catch (const std::exception& error) {
      errors[i] = std::current_exception();
      network.abort(error.what());
    }
  };
  try {
    for (std::size_t i = 0; i < tasks.size(); ++i) threads.emplace_back(run_one, i);
  } catch (const std::system_error&) {
    const Error error(ErrorCode::kResourceExhausted,
                      "the system started only " + std::to_string(threads.size()) + " of " +
                          std::to_string(tasks.size()) +
                          " threads; use fewer workers or raise the limit");
    network.abort(error.what());
    errors.back() = std::make_exception_ptr(error);
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr told_to_stop;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kAborted) throw;
      told_to_stop = error;
    }
  }
  if (told_to_stop) std::rethrow_exception(told_to_stop);
}

// Makes the result's busiest node this one if it is.
void compare_busiest(TrainResult& result, const Counters& node) {
  const std::uint64_t bytes = node.pushed_bytes + node.pulled_bytes;
  if (bytes <= result.busiest_node_bytes) return;
  result.busiest_node_bytes = bytes;
  result.busiest_node_values = node.pushed_values + node.pulled_values;
}

// Steps between those after which a state can be saved; 0 where none is. Of weight-average only the
// exchange knows, which then has those of Job::state_steps alone, and workers that do not wait for
// each other meet in those alone.
std::uint64_t state_every(const Job& job) {
  if (job.state_steps == 0 || !job.in_lock_step()) return 0;
  if (exchange_traits(job.exchange).averages_weights) return 0;
  return job.steps_a_round();
}

// A server's end: an interrupt ends the job at the next message, wherever the model is.
class ServerEnd final : public PassingTransport {
 public:
  ServerEnd(Transport& end, const StopPoint& stop) : PassingTransport(end), stop_(stop) {}

  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    stop_.check();
    return PassingTransport::receive(timeout);
  }

 private:
  const StopPoint& stop_;
};

}  // namespace

Job job_of(const TrainConfig& config) {
  std::vector<TensorInfo> tensors;
  for (const auto& parameter : Network::tensors(config.model, config.classes, config.dropout)) {
    tensors.push_back(
        {.name = parameter.name, .shape = parameter.shape, .kind = tensor_kind(parameter.kind)});
  }
  return job_of(config, std::move(tensors));
}

Job job_of(const TrainConfig& config, std::vector<TensorInfo> tensors) {
  Job job = config.job;
  job.tensors = std::move(tensors);
  if (!servers_encode(job)) job.pull_codec = job.push_codec;  // which nobody uses
  if (!config.later_codec.empty()) {
    go_on_with(later_codec(config.later_codec, config.steps), config, job);
  }
  if (job.push_codec == kAutoCodec || is_auto_pull(job.pull_codec)) choose_among_codecs(job);
  return job;
}

LocalNodes::LocalNodes(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
                       const std::vector<std::unique_ptr<Transport>>& ends,
                       const JobCheckpoint* resume)
    : config_(config),
      data_(data),
      ends_(ends),
      saver_(hooks.on_checkpoint,
             [this](const std::string& sentence) { ends_.front()->abort(sentence); }),
      hooks_(hooks),
      job_(job_of(config)),
      traits_(exchange_traits(job_.exchange)),
      parts_(job_parts(job_)),
      owners_(part_servers(job_)),
      stop_(std::min(config.steps, hooks.last_step.value_or(config.steps)), hooks.stop,
            static_cast<int>(ends.size()) == nodes(), state_every(job_)) {
  job_.state_also_after = &stop_.state_after();
  if (config.job.push_codec == kAutoCodec) {
    rungs_.emplace(*job_.ladder);
    job_.ladder = decided_by(
        job_, [this](std::uint64_t exchange) { return rungs_->rung(exchange); },
        [this](std::uint64_t exchange) { return rungs_->last_step(exchange); });
    if (resume != nullptr) know_earlier_exchanges(*resume);
  }
  if (resume != nullptr) resume_.emplace(*resume, job_);
  if (hooks_.on_checkpoint) {
    hooks_.on_checkpoint = [this](NodeCheckpoint checkpoint) {
      if (copy_end_) checkpoint.copies = copy_end_->swap(checkpoint, job_.wait_limits());
      saver_.put(std::move(checkpoint));
    };
  }
  auto initial = Network::make(config.model, config.classes, config.job.seed, config.dropout);
  start_ = {
      .arguments = arguments_checksum(config, server_nodes(job_), resume_ ? resume_->step() : 0),
      .data = data.train->checksum(),
      .model = checksum_of(checksums_of(initial->parameters()))};
  check_data_of_checkpoint();
  if (!traits_.workers_own_model) make_servers_model(std::move(initial));
  if (ends_.size() == 1 && nodes() > 1) end_together();
  for (const auto& end : ends_) {
    if (is_worker(end->rank())) add_worker(end_of(*end));
  }
}

// With this process's only node among others.
void LocalNodes::end_together() {
  Transport& end = *ends_.front();
  stop_.agree_over(end, job_.wait_limits(), hooks_.on_ending);
  stop_end_.emplace(end, stop_);
  const ServerRing ring = copying_ring();
  if (ring.nodes > 1 && end.rank() >= ring.first) {
    copy_end_.emplace(*stop_end_, ring, !is_worker(end.rank()),
                      most_server_bytes(ring.before(end.rank())));
  }
}

Transport& LocalNodes::end_of(Transport& joined) {
  if (copy_end_) return *copy_end_;
  if (stop_end_) return *stop_end_;
  return joined;
}

void LocalNodes::add_worker(Transport& end) {
  const int rank = end.rank();
  Transport* transport = &end;
  DecisionEnd* decisions = nullptr;
  if (rank == 0) {
    transport = &first_.emplace(end);
  } else if (rungs_) {
    transport = decisions = &decision_ends_.emplace_back(end, *rungs_);
  }
  const bool serves = !traits_.workers_own_model && needs_update(job_, rank);
  workers_.push_back(std::make_unique<TrainWorker>(
      config_, job_, *transport, data_, stop_, slots_, hooks_, serves ? servers_update() : Update(),
      Decided{.rungs = rungs_ ? &*rungs_ : nullptr, .end = decisions},
      [this, rank](CheckpointWriter& checkpoint) { add_server(rank, checkpoint); },
      resume_ ? &*resume_ : nullptr));
}

// Where they depend on what was decided: nothing is read of the checkpoint before they are known.
void LocalNodes::know_earlier_exchanges(const JobCheckpoint& resume) {
  if (job_.local_updates == 0) return;
  const CodecDecisions decisions = decisions_in(fact_in(resume, 0, kDecisionsFact));
  for (const DecidedSteps& each : decided_steps(decisions, *job_.ladder, resume.step())) {
    rungs_->add(each);
  }
}

void LocalNodes::make_servers_model(std::unique_ptr<Network> initial) {
  const bool needed = std::ranges::any_of(
      ends_, [&](const auto& end) { return end->rank() == 0 || has_server(end->rank()); });
  if (!needed) return;
  model_ = std::move(initial);
  descent_.emplace(owners_config(config_), *model_, parts_, rate_gain(config_, job_));
  if (!resume_) return;
  for (const auto& end : ends_) {
    for (const Part& part : parts_owned_by(end->rank())) {
      resume_->read_part(kServerGroup, part, values_in(part));
      resume_->read_descent(*descent_, part, 0,
                            exchanges_up_to(resume_->step(), job_, rungs_ ? &*rungs_ : nullptr));
    }
  }
}

void LocalNodes::check_data_of_checkpoint() const {
  if (!resume_ || resume_->fact(0, kDataFact) == std::to_string(start_.data)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "the checkpoint was made with other data than '" + data_.name +
                  "'; resume with the data that the run began with");
}

void LocalNodes::add_server(int rank, CheckpointWriter& checkpoint) const {
  if (rank == 0 || config_.elastic) checkpoint.add_fact(kDataFact, std::to_string(start_.data));
  for (const Part& part : parts_owned_by(rank)) {
    checkpoint.add(kServerGroup, part, values_in(part));
    checkpoint.add_descent(*descent_, part);
  }
}

// By the server's thread, at a moment when none of its parts is being changed.
void LocalNodes::save_server(const NodeState& state, int rank) const {
  if (!hooks_.on_checkpoint) return;
  // After the last step workers save nothing, unless the run was asked to end or is elastic.
  const bool is_over = state.step >= stop_.last() && state.step != stop_.state_after();
  if (is_over && !config_.elastic) return;
  CheckpointWriter checkpoint(rank, state.step, job_);
  checkpoint.add_exchange(state, parts_);
  add_server(rank, checkpoint);
  hooks_.on_checkpoint(checkpoint.take());
}

Update LocalNodes::servers_update() {
  return [this](const Part& part, std::span<const float> mean, std::span<float> delta) {
    hold_library_threads();  // a colocated server's thread is the communicator's
    descent_->take_step(part.number, mean, delta);
  };
}

void LocalNodes::run() {
  std::vector<std::function<void()>> tasks;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    Transport& end = *ends_[i];
    // Workers come first.
    if (end.rank() == 0) {
      tasks.emplace_back([this] { run_first(*workers_.front(), *first_); });
    } else if (is_worker(end.rank())) {
      tasks.emplace_back([this, &end, i] { run_worker(*workers_[i], end); });
    } else {
      tasks.emplace_back([this, &end] { run_one_server(end); });
    }
  }
  try {
    run_all(tasks, *ends_.front());
  } catch (...) {
    saver_.rethrow_failure();  // rather than that others were told to end
    throw;
  }
  if (first_) take_first_workers();
  workers_.clear();
}

// One worker owns the statistics of batch normalization, which no exchange carries (Goyal et al.
// 2017): worker 0.
void LocalNodes::take_first_workers() {
  auto network = workers_.front()->take_network();
  if (traits_.workers_own_model) {
    descent_.emplace(workers_.front()->take_descent());
    model_ = std::move(network);
    return;
  }
  for (std::size_t i = 0; i < network->statistics().size(); ++i) {
    std::ranges::copy(values_of(network->statistics()[i]),
                      values_of(model_->statistics()[i]).begin());
  }
}

void LocalNodes::run_first(TrainWorker& worker, SortingTransport& end) {
  for (int rank = 1; rank < nodes(); ++rank) {
    // A server has not the whole model that the job goes on with.
    compare_start(end.receive_report(rank, job_.wait_limits()),
                  is_worker(rank) ? start_of(worker) : start_);
  }
  worker.run();
  saver_.finish(0);
  worker_reports_.push_back(report_of(worker));
  const auto checksums = checksums_of(worker.network().parameters());
  for (int rank = 1; rank < nodes(); ++rank) {
    if (is_worker(rank)) take_worker(end.receive_report(rank, job_.wait_limits()), checksums);
    if (has_server(rank)) take_server(end.receive_report(rank, job_.wait_limits()));
  }
}

// Where a generation of a job goes on, all its workers have one model, unless they keep some of
// their own.
StartReport LocalNodes::start_of(const TrainWorker& worker) const {
  StartReport start = start_;
  if (resume_ && config_.elastic && !job_.keeps_shared_copy()) {
    start.model = checksum_of(checksums_of(worker.network().parameters()));
  }
  return start;
}

void LocalNodes::run_worker(TrainWorker& worker, Transport& end) {
  end.send(0, pack_report(start_of(worker)));
  worker.run();
  // Who reports has everything on its disk.
  saver_.finish(end.rank());
  const auto checksums = checksums_of(worker.network().parameters());
  end.send(0, pack_report(report_of(worker), bytes_of(checksums)));
  if (has_server(end.rank())) {
    end.send(0, pack_report(ServerReport(), bytes_of(told_by(end.rank()))));
  }
}

void LocalNodes::run_one_server(Transport& end) {
  end.send(0, pack_report(start_));
  ServerEnd stoppable(end_of(end), stop_);
  ServerReport report;
  const int rank = end.rank();
  const auto threads = make_codec_threads(config_, nodes());
  std::optional<NodeState> resumed;
  if (resume_) resumed = resume_->exchange_of(rank);
  Job job = job_;
  std::optional<DecisionEnd> decisions;
  if (rungs_) {
    decisions.emplace(stoppable, *rungs_);
    job.ladder = decided_by(
        job_, [&](std::uint64_t exchange) { return decisions->rung(exchange, job_.wait_limits()); },
        [this](std::uint64_t exchange) { return rungs_->last_step(exchange); });
  }
  Transport& transport = decisions ? static_cast<Transport&>(*decisions) : stoppable;
  // As workers do, so that the job can go on from here whoever comes or goes before the next state.
  const bool saves = config_.elastic && job_.state_steps > 0;
  if (resumed && saves && resumed->step % job_.state_steps == 0) save_server(*resumed, rank);
  report.counters =
      run_server(job, transport, needs_update(job_, rank) ? servers_update() : Update(),
                 threads.get(), resumed ? &*resumed : nullptr,
                 [this, rank](const NodeState& state) { save_server(state, rank); });
  saver_.finish(rank);
  end.send(0, pack_report(report, bytes_of(told_by(end.rank()))));
}

// Those that a server has to tell about: none where workers own the model.
std::vector<Part> LocalNodes::parts_owned_by(int rank) const {
  std::vector<Part> parts;
  if (traits_.workers_own_model) return parts;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] == rank) parts.push_back(parts_[i]);
  }
  return parts;
}

ServerRing LocalNodes::copying_ring() const {
  if (!config_.elastic || traits_.workers_own_model) return {};
  const int servers = server_nodes(job_);
  return servers > 0 ? ServerRing{.first = job_.workers, .nodes = servers}
                     : ServerRing{.first = 0, .nodes = job_.workers};
}

std::size_t LocalNodes::most_server_bytes(int rank) const {
  constexpr std::size_t kMostArrays = 8;  // values, residuals, and what an optimizer keeps
  constexpr std::size_t kNames = 1024;    // an array's, and its length
  std::size_t bytes = kNames;
  for (const Part& part : parts_owned_by(rank)) {
    bytes += kMostArrays * (part.elems * sizeof(float) + kNames);
  }
  return bytes;
}

std::span<float> LocalNodes::values_in(const Part& part) const {
  return values_of(model_->parameters()[part.tensor]).subspan(part.begin, part.elems);
}

std::vector<std::span<float>> LocalNodes::memory_owned_by(int rank) {
  std::vector<std::span<float>> memory;
  for (const Part& part : parts_owned_by(rank)) {
    memory.push_back(values_in(part));
    memory.push_back(descent_->average(part.number));
  }
  return memory;
}

std::vector<float> LocalNodes::told_by(int rank) {
  std::vector<float> values;
  for (const std::span<float> part : memory_owned_by(rank)) {
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

void LocalNodes::compare_start(const Incoming& message, const StartReport& own) const {
  const auto other = parse_report<StartReport>(message, 0);
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kFailedPrecondition, "rank " + std::to_string(message.from) +
                                                    " was started with " + what +
                                                    " than rank 0; give all ranks the same");
  };
  if (other.arguments != own.arguments) refuse("other arguments or another version");
  if (other.data != own.data) refuse("other data");
  if (other.model != own.model) refuse("another model");
}

void LocalNodes::take_worker(const Incoming& message, const std::vector<std::uint64_t>& checksums) {
  const ByteView expected = bytes_of(checksums);
  ByteView tail;
  worker_reports_.push_back(parse_report<WorkerReport>(message, expected.size(), &tail));
  // The exchange promises identical replicas.
  const auto wrong = std::ranges::mismatch(expected, tail).in1 - expected.begin();
  if (wrong == std::ssize(expected)) return;
  const auto tensor = static_cast<std::size_t>(wrong) / sizeof(checksums[0]);
  throw Error(ErrorCode::kInternal, "workers 0 and " + std::to_string(message.from) +
                                        " ended with different values in tensor '" +
                                        job_.tensors[tensor].name + "'; please report this run");
}

// Where the server is in this process its values are there already.
void LocalNodes::take_server(const Incoming& message) {
  const std::vector<std::span<float>> memory = memory_owned_by(message.from);
  std::size_t bytes = 0;
  for (const std::span<float> part : memory) bytes += part.size_bytes();
  ByteView values;
  server_reports_.push_back(parse_report<ServerReport>(message, bytes, &values));
  for (const std::span<float> part : memory) {
    std::ranges::copy(values.first(part.size_bytes()), std::as_writable_bytes(part).begin());
    values = values.subspan(part.size_bytes());
  }
}

TestOutcome LocalNodes::tested() {
  if (config_.ema == 0) return test_of(*model_, *data_.test);
  descent_->swap_averages();
  const TestOutcome outcome = test_of(*model_, *data_.test);
  descent_->swap_averages();
  return outcome;
}

TrainResult LocalNodes::result() {
  TrainResult result;
  result.steps = stop_.last();
  result.stopped_by = stop_.asker();
  result.ended_by = stop_.ended_by();
  result.resumed_after = resume_ ? resume_->step() : 0;
  Totals totals = worker_reports_.front().totals;  // worker 0's, whose clock counts
  for (std::size_t i = 1; i < worker_reports_.size(); ++i) {
    totals.take_over(worker_reports_[i].totals);
  }
  result.counted_after = totals.since;
  result.seconds = totals.seconds;
  result.worker_counters = totals.counters;
  double loss_sum = 0;
  std::uint64_t losses = 0;
  for (const WorkerReport& worker : worker_reports_) {
    compare_busiest(result, worker.counters);
    loss_sum += worker.loss_sum;
    losses += worker.losses;
    if (worker.diverged_step > 0) {
      result.diverged_step =
          std::min(worker.diverged_step, result.diverged_step.value_or(worker.diverged_step));
    }
  }
  if (losses > 0) result.final_loss = loss_sum / static_cast<double>(losses);
  if (totals.steps > 0) {
    const Counters& counters = result.worker_counters;
    const auto n = static_cast<double>(totals.steps);
    result.codec_seconds = (counters.encode_seconds + counters.decode_seconds) / n;
    result.compute_seconds =
        std::max(totals.cpu_seconds / n - result.codec_seconds, config_.compute_ms * 1e-3);
  }
  for (const ServerReport& server : server_reports_) compare_busiest(result, server.counters);
  for (const TensorInfo& tensor : job_.tensors) result.values += tensor.elems();
  result.servers = server_nodes(job_);
  result.servers_encode = servers_encode(job_);
  result.workers_own_model = traits_.workers_own_model;
  result.rate_gain = rate_gain(config_, job_)(std::max<std::uint64_t>(1, result.steps));
  result.parameters_checksum = checksum_of(*model_);
  const TestOutcome outcome = tested();
  result.test_accuracy = outcome.accuracy;
  result.test_loss = outcome.loss;
  for (const auto* tensors : {&model_->parameters(), &model_->statistics()}) {
    for (const Network::Parameter& tensor : *tensors) result.model[tensor.name] = array_of(tensor);
  }
  return result;
}

}  // namespace tersewire::trainer
