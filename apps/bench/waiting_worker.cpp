#include "apps/bench/waiting_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tersewire/error.h"
#include "tersewire/measure.h"

namespace tersewire::bench {
namespace {

constexpr float kLearningRate = 0.01F;

// What computation is spread over: the rest costs next to nothing.
bool is_weight(const TensorInfo& tensor) { return tensor.shape.size() > 1; }

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Update update_of(const Job& job, int rank) {
  if (!needs_update(job, rank)) return {};
  return [](const Part&, std::span<const float> mean_gradient, std::span<float> delta) {
    std::ranges::transform(mean_gradient, delta.begin(),
                           [](float value) { return -kLearningRate * value; });
  };
}

WaitingWorker::WaitingWorker(const WaitingWorkerConfig& config, const Job& job,
                             const GradientSource& gradients, RoundTransport& transport)
    : config_(config),
      job_(job),
      gradients_(gradients),
      transport_(transport),
      communicator_(make_communicator(job, transport, update_of(job, transport.rank()))) {
  for (const TensorInfo& tensor : job.tensors) {
    parameters_.emplace_back(tensor.elems());
    std::ranges::fill(parameters_.back(), 0.0F);
  }
  const auto weights = std::max<std::ptrdiff_t>(std::ranges::count_if(job.tensors, is_weight), 1);
  forward_slice_ = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(config.compute_seconds / 3 / static_cast<double>(weights)));
}

WorkerMeasures WaitingWorker::run() {
  const std::uint64_t last = config_.warm_up_steps + config_.steps;
  std::optional<Snapshot> start;
  std::uint64_t computed = 0;  // measured steps: a worker that others have overtaken skips some
  while (begin_step() <= last) {
    forward();
    if (!start && step_ > config_.warm_up_steps) start = snapshot();
    if (start) ++computed;
    backward();
  }
  forward();
  const Snapshot end = snapshot();
  finish();
  if (computed == 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("worker {} was overtaken in every step that counts; measure more steps",
                            transport_.rank()));
  }
  return measures(*start, end, computed);
}

std::uint64_t WaitingWorker::begin_step() {
  step_ = communicator_->begin_step();
  if ((step_ - 1) % static_cast<std::uint64_t>(job_.local_steps) != 0) return step_;
  const auto now = Clock::now();
  if (round_ > config_.warm_up_steps) {
    step_seconds_.push_back(seconds_between(round_began_, now) /
                            static_cast<double>(step_ - round_));
  }
  round_ = step_;
  round_began_ = now;
  return step_;
}

void WaitingWorker::forward() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    communicator_->pull(i, parameters_[i]);
    if (!is_weight(job_.tensors[i])) continue;
    accelerator_free_ = std::max(accelerator_free_, Clock::now()) + forward_slice_;
  }
}

void WaitingWorker::backward() {
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (is_weight(job_.tensors[i])) accelerator_free_ += 2 * forward_slice_;
    std::this_thread::sleep_until(accelerator_free_);
    communicator_->push(i, gradients_.gradient(i, transport_.rank(), step_));
  }
}

void WaitingWorker::finish() {
  std::vector<std::span<float>> parameters(parameters_.begin(), parameters_.end());
  communicator_->finish(parameters);
}

// A server beside this worker may still have something to send when the worker has all that it
// needs. Where backups are left behind, no two workers are at the same step.
WaitingWorker::Snapshot WaitingWorker::snapshot() {
  const auto wait_for_all = [&] {
    if (job_.backup_workers == 0) transport_.await(job_.workers, job_.wait_limits());
  };
  wait_for_all();
  const Counters counters = communicator_->counters();
  const Snapshot now{.sent_bytes = transport_.bytes_sent(),
                     .received_bytes = transport_.bytes_received(),
                     .codec_seconds = counters.encode_seconds + counters.decode_seconds};
  wait_for_all();
  return now;
}

WorkerMeasures WaitingWorker::measures(const Snapshot& from, const Snapshot& to,
                                       std::uint64_t computed) {
  const auto steps = static_cast<double>(computed);
  return {.step_seconds_median = median(step_seconds_),
          .push_bytes = static_cast<double>(to.sent_bytes - from.sent_bytes) / steps,
          .pull_bytes = static_cast<double>(to.received_bytes - from.received_bytes) / steps,
          .codec_seconds = (to.codec_seconds - from.codec_seconds) / steps};
}

}  // namespace tersewire::bench
