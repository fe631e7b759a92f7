#include "trainer/local_nodes.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

template <typename T>
ByteView bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::uint64_t checksum_of(const std::vector<T>& values, std::uint64_t seed = 0) {
  return XXH64(values.data(), values.size() * sizeof(T), seed);
}

// What all nodes must be started with alike: not where each finds the data, nor its patience.
std::uint64_t arguments_checksum(const TrainConfig& config, int servers) {
  std::ostringstream text;
  text << TERSEWIRE_VERSION << std::hexfloat;
  for (const std::string& name :
       {config.model, config.push_codec, config.pull_codec, config.policy, config.exchange}) {
    text << ' ' << name.size() << ' ' << name;
  }
  text << ' ' << config.workers << ' ' << servers << ' ' << config.local_steps << ' '
       << config.backup_workers << ' ' << config.raw_from_all << ' ' << config.steps << ' '
       << config.batch << ' ' << config.learning_rate << ' ' << config.scale_learning_rate << ' '
       << config.momentum << ' ' << config.weight_decay << ' ' << config.seed;
  const std::string bytes = text.str();
  return XXH64(bytes.data(), bytes.size(), 0);
}

WorkerReport report_of(const Worker& worker) {
  WorkerReport report{.counters = worker.counters(),
                      .steps = worker.steps(),
                      .cpu_seconds = worker.cpu_seconds(),
                      .losses = worker.losses().size()};
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
                      "the system starts no more than " + std::to_string(threads.size()) + " of " +
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

void add(Counters& sum, const Counters& one) {
  sum.pushed_bytes += one.pushed_bytes;
  sum.pulled_bytes += one.pulled_bytes;
  sum.pushed_values += one.pushed_values;
  sum.pulled_values += one.pulled_values;
  sum.not_finite_tensors += one.not_finite_tensors;
  sum.unused_pushes += one.unused_pushes;
  sum.encode_seconds += one.encode_seconds;
  sum.decode_seconds += one.decode_seconds;
  sum.wait_seconds += one.wait_seconds;
  sum.exchange_seconds += one.exchange_seconds;
}

// Makes the result's busiest node this one if it is.
void compare_busiest(TrainResult& result, const Counters& node) {
  const std::uint64_t bytes = node.pushed_bytes + node.pulled_bytes;
  if (bytes <= result.busiest_node_bytes) return;
  result.busiest_node_bytes = bytes;
  result.busiest_node_values = node.pushed_values + node.pulled_values;
}

// A server's end: an interrupt ends the job at the next message, wherever the model is.
class ServerEnd final : public Transport {
 public:
  ServerEnd(Transport& end, const StopPoint& stop) : end_(end), stop_(stop) {}

  [[nodiscard]] int rank() const noexcept override { return end_.rank(); }
  [[nodiscard]] int size() const noexcept override { return end_.size(); }
  void send(int to, SharedBytes bytes) override { end_.send(to, std::move(bytes)); }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    stop_.check();
    return end_.receive(timeout);
  }
  void abort(const std::string& reason) noexcept override { end_.abort(reason); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return end_.bytes_sent(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
    return end_.bytes_received();
  }

 private:
  Transport& end_;
  const StopPoint& stop_;
};

}  // namespace

Job job_of(const TrainConfig& config) {
  Job job;
  const auto network = Network::make(config.model, config.seed);
  for (const Network::Parameter& parameter : network->parameters()) {
    job.tensors.push_back(
        {.name = parameter.name, .shape = parameter.shape, .kind = tensor_kind(parameter.kind)});
  }
  job.workers = config.workers;
  job.servers = config.servers;
  job.backup_workers = config.backup_workers;
  job.local_steps = config.local_steps;
  job.raw_from_all = config.raw_from_all;
  job.exchange = config.exchange;
  job.push_codec = config.push_codec;
  job.pull_codec = config.pull_codec;
  job.policy = config.policy;
  job.seed = config.seed;
  // Threads of one process do not fall silent unnoticed, but a suspended program is silent for
  // long.
  job.deadline = config.transport == kInProcess ? std::chrono::hours(24)
                                                : std::chrono::seconds(config.deadline_seconds);
  return job;
}

LocalNodes::LocalNodes(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
                       const std::vector<std::unique_ptr<Transport>>& ends)
    : config_(config),
      data_(data),
      hooks_(hooks),
      ends_(ends),
      job_(job_of(config)),
      owners_(tensor_servers(job_)),
      stop_(config.steps, hooks.stop, static_cast<int>(ends.size()) == nodes()) {
  auto initial = Network::make(config.model, config.seed);
  start_ = {.arguments = arguments_checksum(config, server_nodes(job_)),
            .data = checksum_of(data.train.labels, checksum_of(data.train.pixels)),
            .model = checksum_of(checksums_of(initial->parameters()))};
  if (!workers_own_model(job_)) make_servers_model(std::move(initial));
  for (const auto& end : ends_) {
    const int rank = end->rank();
    if (!is_worker(rank)) continue;
    if (rank == 0) first_.emplace(*end);
    Transport& transport = rank == 0 ? static_cast<Transport&>(*first_) : *end;
    const bool serves = !workers_own_model(job_) && needs_update(job_, rank);
    workers_.push_back(std::make_unique<Worker>(config, job_, transport, data.train, stop_, hooks,
                                                serves ? servers_update() : Update()));
  }
}

void LocalNodes::make_servers_model(std::unique_ptr<Network> initial) {
  const bool needed = std::ranges::any_of(
      ends_, [&](const auto& end) { return end->rank() == 0 || has_server(end->rank()); });
  if (!needed) return;
  model_ = std::move(initial);
  descent_.emplace(config_, *model_);
}

Update LocalNodes::servers_update() {
  return [this](std::size_t tensor, std::span<const float> mean, std::span<float> delta) {
    hold_library_threads();  // a colocated server's thread is the communicator's
    descent_->take_step(tensor, mean, delta);
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
  run_all(tasks, *ends_.front());
  if (first_ && workers_own_model(job_)) model_ = workers_.front()->take_network();
  workers_.clear();
}

void LocalNodes::run_first(Worker& worker, SortingTransport& end) {
  for (int rank = 1; rank < nodes(); ++rank) compare_start(end.receive_report(rank, job_.deadline));
  worker.run();
  seconds_ = worker.seconds();
  worker_reports_.push_back(report_of(worker));
  const auto checksums = checksums_of(worker.network().parameters());
  for (int rank = 1; rank < nodes(); ++rank) {
    if (is_worker(rank)) take_worker(end.receive_report(rank, job_.deadline), checksums);
    if (has_server(rank)) take_server(end.receive_report(rank, job_.deadline));
  }
}

void LocalNodes::run_worker(Worker& worker, Transport& end) {
  end.send(0, pack_report(start_));
  worker.run();
  const auto checksums = checksums_of(worker.network().parameters());
  end.send(0, pack_report(report_of(worker), bytes_of(checksums)));
  if (has_server(end.rank())) {
    end.send(0, pack_report(ServerReport(), bytes_of(values_owned_by(end.rank()))));
  }
}

void LocalNodes::run_one_server(Transport& end) {
  end.send(0, pack_report(start_));
  ServerEnd stoppable(end, stop_);
  ServerReport report;
  report.counters =
      run_server(job_, stoppable, needs_update(job_, end.rank()) ? servers_update() : Update());
  end.send(0, pack_report(report, bytes_of(values_owned_by(end.rank()))));
}

// Those whose values a server has to tell: none where workers own the model.
std::vector<std::size_t> LocalNodes::tensors_owned_by(int rank) const {
  std::vector<std::size_t> tensors;
  if (workers_own_model(job_)) return tensors;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] == rank) tensors.push_back(i);
  }
  return tensors;
}

std::vector<float> LocalNodes::values_owned_by(int rank) const {
  std::vector<float> values;
  for (const std::size_t i : tensors_owned_by(rank)) {
    const auto tensor = values_of(model_->parameters()[i]);
    values.insert(values.end(), tensor.begin(), tensor.end());
  }
  return values;
}

void LocalNodes::compare_start(const Incoming& message) const {
  const auto other = parse_report<StartReport>(message, 0);
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kFailedPrecondition, "rank " + std::to_string(message.from) +
                                                    " was started with " + what +
                                                    " than rank 0; give all ranks the same");
  };
  if (other.arguments != start_.arguments) refuse("other arguments or another version");
  if (other.data != start_.data) refuse("other data");
  if (other.model != start_.model) refuse("another initial model");
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
  std::vector<std::span<std::byte>> tensors;
  std::size_t bytes = 0;
  for (const std::size_t i : tensors_owned_by(message.from)) {
    tensors.push_back(std::as_writable_bytes(values_of(model_->parameters()[i])));
    bytes += tensors.back().size();
  }
  ByteView values;
  server_reports_.push_back(parse_report<ServerReport>(message, bytes, &values));
  for (const std::span<std::byte> tensor : tensors) {
    std::ranges::copy(values.first(tensor.size()), tensor.begin());
    values = values.subspan(tensor.size());
  }
}

TrainResult LocalNodes::result() const {
  TrainResult result;
  result.seconds = seconds_;
  result.steps = stop_.last();
  double cpu_seconds = 0;
  double loss_sum = 0;
  std::uint64_t losses = 0;
  std::uint64_t worker_steps = 0;
  for (const WorkerReport& worker : worker_reports_) {
    add(result.worker_counters, worker.counters);
    compare_busiest(result, worker.counters);
    cpu_seconds += worker.cpu_seconds;
    worker_steps += worker.steps;
    loss_sum += worker.loss_sum;
    losses += worker.losses;
  }
  if (losses > 0) result.final_loss = loss_sum / static_cast<double>(losses);
  if (worker_steps > 0) {
    const Counters& counters = result.worker_counters;
    const auto n = static_cast<double>(worker_steps);
    result.codec_seconds = (counters.encode_seconds + counters.decode_seconds) / n;
    result.compute_seconds = cpu_seconds / n - result.codec_seconds;
  }
  for (const ServerReport& server : server_reports_) compare_busiest(result, server.counters);
  for (const TensorInfo& tensor : job_.tensors) result.values += tensor.elems();
  result.servers = server_nodes(job_);
  result.servers_encode = result.servers > 0 || !owners_.empty();
  result.workers_own_model = workers_own_model(job_);
  result.parameters_checksum = checksum_of(*model_);
  result.test_accuracy = test_accuracy(*model_, data_.test);
  return result;
}

}  // namespace tersewire::trainer
