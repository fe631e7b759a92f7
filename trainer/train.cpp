#include "trainer/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numbers>
#include <numeric>
#include <span>
#include <system_error>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "trainer/models/network.h"

namespace tersewire::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFinalLossSteps = 50;
// The cosine ends at this fraction of where it starts (3LC section 4.3: from 0.1 to 0.001).
constexpr double kFinalRateFraction = 0.01;
constexpr std::size_t kTestBatch = 500;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::span<float> values_of(const Network::Parameter& parameter) {
  return {parameter.values, parameter.elems};
}

// MNIST's mean and deviation, which the embedded images are near enough to.
constexpr float kPixelMean = 0.1307F;
constexpr float kPixelDeviation = 0.3081F;

// Images of a data set as the network takes them; keeps its memory from batch to batch.
class Batch {
 public:
  explicit Batch(const Dataset& data) : data_(data) {}

  const Images& gather(std::span<const std::uint32_t> indices) {
    pixels_.clear();
    labels_.clear();
    for (const std::uint32_t index : indices) {
      const auto image =
          std::span(data_.pixels).subspan(index * data_.image_bytes(), data_.image_bytes());
      for (const std::uint8_t pixel : image) {
        pixels_.push_back((static_cast<float>(pixel) / 255.0F - kPixelMean) / kPixelDeviation);
      }
      labels_.push_back(data_.labels[index]);
    }
    images_ = {pixels_.data(), labels_.data(), indices.size()};
    return images_;
  }

 private:
  const Dataset& data_;
  std::vector<float> pixels_;
  std::vector<std::int64_t> labels_;
  Images images_{};
};

// Where the run ends: after config.steps, or sooner where somebody asked for it. All workers must
// end after the same step, so the first to notice chooses one that nobody has passed.
class StopPoint {
 public:
  StopPoint(std::uint64_t steps, const std::atomic<bool>* stop) : last_(steps), stop_(stop) {}

  // Whether `step`, which a worker has begun, is to be computed.
  bool reached(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    if (stop_ != nullptr && stop_->load() && !chosen_) {
      chosen_ = true;
      last_ = std::min(last_, std::max(newest_, step));
    }
    newest_ = std::max(newest_, step);
    return step > last_;
  }
  std::uint64_t last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_;
  std::uint64_t newest_ = 0;
  bool chosen_ = false;
  const std::atomic<bool>* stop_;
};

// The servers' model, and what changes it: momentum SGD with cosine decay, a tensor at a time.
class GlobalModel {
 public:
  explicit GlobalModel(const TrainConfig& config)
      : steps_(config.steps),
        rate_(config.learning_rate * (config.scale_learning_rate ? config.workers : 1)),
        network_(Network::make(config.model, config.seed)),
        taken_(network_->parameters().size(), 0) {
    for (const Network::Parameter& parameter : network_->parameters()) {
      optimizers_.push_back(Optimizer::make(parameter, config.momentum, config.weight_decay));
    }
  }

  [[nodiscard]] const std::vector<Network::Parameter>& parameters() const {
    return network_->parameters();
  }

  // One tensor's step; different tensors by different threads at once.
  void update(std::size_t tensor, std::span<const float> gradient, std::span<float> delta) {
    const std::span<const float> values = values_of(network_->parameters()[tensor]);
    std::ranges::copy(values, delta.begin());
    optimizers_[tensor]->step(gradient.data(), rate_at(taken_[tensor]++));
    for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = values[i] - delta[i];
  }

  [[nodiscard]] double test_accuracy(const Dataset& test) const {
    Batch batch(test);
    std::vector<std::uint32_t> indices;
    std::size_t right = 0;
    for (std::size_t first = 0; first < test.size(); first += kTestBatch) {
      indices.resize(std::min(kTestBatch, test.size() - first));
      std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
      right += network_->count_right(batch.gather(indices));
    }
    return static_cast<double>(right) / static_cast<double>(test.size());
  }

  [[nodiscard]] std::string checksum() const {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (const Network::Parameter& parameter : network_->parameters()) {
      const auto values = values_of(parameter);
      XXH64_update(&state, values.data(), values.size_bytes());
    }
    char hex[17];
    std::snprintf(hex, sizeof(hex), "%016llx",
                  static_cast<unsigned long long>(XXH64_digest(&state)));
    return hex;
  }

 private:
  [[nodiscard]] double rate_at(std::uint64_t step) const {
    const double done = static_cast<double>(step) / static_cast<double>(steps_);
    const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
    return rate_ * (kFinalRateFraction + (1 - kFinalRateFraction) * cosine);
  }

  std::uint64_t steps_;
  double rate_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<std::uint64_t> taken_;  // steps, by tensor
};

// One worker: its replica, its shard, its end of the exchange.
class Worker {
 public:
  Worker(const TrainConfig& config, const Job& job, Transport& transport, const Dataset& data,
         StopPoint& stop, const TrainHooks& hooks)
      : rank_(static_cast<std::size_t>(transport.rank())),
        batch_(data),
        stop_(stop),
        hooks_(hooks),
        network_(Network::make(config.model, config.seed)),
        sampler_(data.size(), static_cast<std::size_t>(config.workers), rank_, config.batch,
                 config.seed),
        communicator_(make_communicator(job, transport)) {}

  void run() {
    start_ = Clock::now();
    const double cpu_start = thread_cpu_seconds();
    for (step_ = communicator_->begin_step(); !stop_.reached(step_);
         step_ = communicator_->begin_step()) {
      take_step();
    }
    std::vector<std::span<float>> parameters;
    for (const auto& parameter : network_->parameters()) parameters.push_back(values_of(parameter));
    communicator_->finish(parameters);
    cpu_seconds_ = thread_cpu_seconds() - cpu_start;
  }

  [[nodiscard]] const Network& network() const { return *network_; }
  [[nodiscard]] const Counters& counters() const { return communicator_->counters(); }
  // Of the last steps.
  [[nodiscard]] const std::deque<double>& losses() const { return losses_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] double cpu_seconds() const { return cpu_seconds_; }

 private:
  void trace(TraceKind kind, std::size_t tensor = 0) const {
    if (rank_ == 0 && hooks_.on_event) hooks_.on_event({kind, step_, tensor});
  }

  void pull(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      communicator_->pull(i, values_of(network_->parameters()[i]));
      trace(TraceKind::kPulled, i);
    }
  }

  void push(std::size_t tensor, std::span<const float> gradient) {
    communicator_->push(tensor, gradient);
    trace(TraceKind::kPushed, tensor);
  }

  void take_step() {
    sampler_.next(indices_);
    const auto outcome = network_->step(
        batch_.gather(indices_),
        {.before_layer = [this](std::size_t first, std::size_t count) { pull(first, count); },
         .backward_begins = [this] { trace(TraceKind::kBackwardBegin); },
         .on_gradient =
             [this](std::size_t i, const float* gradient, std::size_t elems) {
               push(i, {gradient, elems});
             }});
    trace(TraceKind::kBackwardEnd);
    ++steps_;
    losses_.push_back(outcome.loss);
    if (losses_.size() > kFinalLossSteps) losses_.pop_front();
    if (rank_ != 0 || !hooks_.on_step) return;
    hooks_.on_step(
        {.step = step_,
         .loss = outcome.loss,
         .accuracy = static_cast<double>(outcome.right) / static_cast<double>(indices_.size()),
         .seconds = seconds_since(start_),
         .counters = communicator_->counters()});
  }

  std::size_t rank_;
  Batch batch_;
  StopPoint& stop_;
  const TrainHooks& hooks_;
  std::unique_ptr<Network> network_;
  BatchSampler sampler_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::uint32_t> indices_;
  std::deque<double> losses_;
  std::uint64_t steps_ = 0;
  std::uint64_t step_ = 0;
  Clock::time_point start_;
  double cpu_seconds_ = 0;
};

Job job_of(const TrainConfig& config, const std::vector<Network::Parameter>& parameters) {
  Job job;
  for (const Network::Parameter& parameter : parameters) {
    job.tensors.push_back(
        {.name = parameter.name, .shape = parameter.shape, .kind = tensor_kind(parameter.kind)});
  }
  job.workers = config.workers;
  job.servers = config.servers;
  job.backup_workers = config.backup_workers;
  job.exchange = config.exchange;
  job.push_codec = config.push_codec;
  job.pull_codec = config.pull_codec;
  job.policy = config.policy;
  job.seed = config.seed;
  // Threads of one process do not fall silent unnoticed, but a suspended program is silent for
  // long.
  job.deadline = std::chrono::hours(24);
  return job;
}

void check_numbers(const TrainConfig& config) {
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  if (config.transport != "in-process") {
    refuse("there is no transport '" + config.transport + "'; use in-process");
  }
  if (config.workers < 1) refuse("a job needs at least 1 worker");
  if (config.servers < 1) refuse("a job needs at least 1 server");
  if (config.steps < 1) refuse("a job needs at least 1 step");
  if (!(config.momentum >= 0 && config.momentum < 1)) {
    refuse("the momentum must be from 0 to below 1");
  }
  if (!(config.weight_decay >= 0) || !std::isfinite(config.weight_decay)) {
    refuse("the weight decay must be a finite number not below 0");
  }
  if (!(config.learning_rate > 0) || !std::isfinite(config.learning_rate)) {
    refuse("the learning rate must be a finite number above 0");
  }
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
}

// The exchange promises identical replicas.
void check_replicas(const std::vector<std::unique_ptr<Worker>>& workers) {
  const auto& first = workers.front()->network().parameters();
  for (std::size_t rank = 1; rank < workers.size(); ++rank) {
    const auto& other = workers[rank]->network().parameters();
    for (std::size_t i = 0; i < first.size(); ++i) {
      const auto a = values_of(first[i]);
      const auto b = values_of(other[i]);
      // Bits, not values: a NaN is like itself.
      if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) continue;
      throw Error(ErrorCode::kInternal, "workers 0 and " + std::to_string(rank) +
                                            " ended with different values in tensor '" +
                                            first[i].name + "'; please report this run");
    }
  }
}

double final_loss(const std::vector<std::unique_ptr<Worker>>& workers) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& worker : workers) {
    for (const double loss : worker->losses()) sum += loss;
    count += worker->losses().size();
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

std::uint64_t busiest_server_values(const Job& job) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(job.workers + job.servers), 0);
  const std::vector<int> owners = tensor_servers(job);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    values[static_cast<std::size_t>(owners[i])] += job.tensors[i].elems();
  }
  return *std::ranges::max_element(values);
}

void add_workers(TrainResult& result, const std::vector<std::unique_ptr<Worker>>& workers) {
  double cpu_seconds = 0;
  std::uint64_t worker_steps = 0;
  for (const auto& worker : workers) {
    add(result.worker_counters, worker->counters());
    cpu_seconds += worker->cpu_seconds();
    worker_steps += worker->steps();
  }
  if (worker_steps == 0) return;
  const double codec =
      result.worker_counters.encode_seconds + result.worker_counters.decode_seconds;
  const auto n = static_cast<double>(worker_steps);
  result.codec_seconds = codec / n;
  result.compute_seconds = (cpu_seconds - codec) / n;
}

}  // namespace

std::uint64_t steps_for_epochs(double epochs, std::size_t images, std::size_t workers,
                               std::size_t batch) {
  const double a_step = static_cast<double>(workers) * static_cast<double>(batch);
  const double steps = std::ceil(epochs * static_cast<double>(images) / a_step);
  if (!(steps >= 1 && steps < 1e15)) {
    throw Error(ErrorCode::kInvalidArgument,
                "that many epochs make no number of steps that could be run; use a finite number "
                "above 0");
  }
  return static_cast<std::uint64_t>(steps);
}

void check(const TrainConfig& config, const DataSplits& data) {
  check_numbers(config);
  const Job job = job_of(config, Network::make(config.model, config.seed)->parameters());
  tensor_servers(job);
  choose_codecs(config.policy, config.push_codec, job.tensors);
  choose_codecs(config.policy, config.pull_codec, job.tensors);
  for (const Dataset* images : {&data.train, &data.test}) {
    if (images->image_bytes() == Network::kPixels && images->height == images->width) continue;
    throw Error(ErrorCode::kInvalidArgument, "the images of '" + data.name + "' are " +
                                                 std::to_string(images->height) + " x " +
                                                 std::to_string(images->width) + ", and model " +
                                                 config.model + " takes 28 x 28; use such images");
  }
  // The last worker's shard is the smallest.
  const auto workers = static_cast<std::size_t>(config.workers);
  BatchSampler(data.train.size(), workers, workers - 1, config.batch, config.seed);
}

TrainResult train(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks) {
  check(config, data);
  hold_library_threads();
  GlobalModel global(config);
  const Job job = job_of(config, global.parameters());
  const auto network = make_in_process_network(config.workers + config.servers);
  StopPoint stop(config.steps, hooks.stop);

  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::function<void()>> tasks;
  for (int rank = 0; rank < config.workers; ++rank) {
    workers.push_back(std::make_unique<Worker>(
        config, job, *network[static_cast<std::size_t>(rank)], data.train, stop, hooks));
    tasks.push_back([&, rank] { workers[static_cast<std::size_t>(rank)]->run(); });
  }
  std::vector<Counters> servers(static_cast<std::size_t>(config.servers));
  for (int rank = config.workers; rank < config.workers + config.servers; ++rank) {
    tasks.push_back([&, rank] {
      servers[static_cast<std::size_t>(rank - config.workers)] =
          run_server(job, *network[static_cast<std::size_t>(rank)],
                     [&](std::size_t tensor, std::span<const float> mean, std::span<float> delta) {
                       global.update(tensor, mean, delta);
                     });
    });
  }
  const auto start = Clock::now();
  run_all(tasks, *network.front());

  TrainResult result;
  result.seconds = seconds_since(start);
  check_replicas(workers);
  result.steps = stop.last();
  for (const TensorInfo& tensor : job.tensors) result.values += tensor.elems();
  result.final_loss = final_loss(workers);
  add_workers(result, workers);
  for (const Counters& server : servers) {
    result.busiest_server_bytes =
        std::max(result.busiest_server_bytes, server.pushed_bytes + server.pulled_bytes);
  }
  result.busiest_server_values = busiest_server_values(job);
  result.parameters_checksum = global.checksum();
  result.test_accuracy = global.test_accuracy(data.test);
  return result;
}

}  // namespace tersewire::trainer
