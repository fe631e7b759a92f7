#include "trainer/loop/train_worker.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include "tersewire/error.h"
#include "tersewire/measure.h"
#include "trainer/loop/codec_threads.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFinalLossSteps = 50;
// Facts of a checkpoint.
constexpr const char* kLossesFact = "losses";
constexpr const char* kLossWatchFact = "loss-watch";
constexpr const char* kTotalsFact = "totals";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::span<float> values_in(const Network& network, const Part& part) {
  return values_of(network.parameters()[part.tensor]).subspan(part.begin, part.elems);
}

}  // namespace

TrainWorker::TrainWorker(const TrainConfig& config, const Job& job, Transport& transport,
                         const DataSplits& data, StopPoint& stop, ComputeSlots& slots,
                         const TrainHooks& hooks, const Update& of_server, const Decided& decided,
                         AddServer add_server, const CheckpointReader* resume)
    : config_(config),
      job_(job),
      traits_(exchange_traits(job.exchange)),
      parts_(job_parts(job)),
      transport_(transport),
      rank_(static_cast<std::size_t>(transport.rank())),
      batches_(*data.train, config.job.seed, rank_),
      test_(*data.test),
      stop_(stop),
      slots_(slots),
      hooks_(hooks),
      network_(Network::make(config.model, config.classes, config.job.seed, config.dropout)),
      sampler_(data.train->size(), static_cast<std::size_t>(config.job.workers), rank_,
               config.batch, config.job.seed),
      update_(traits_.workers_own_model ? own_update(config) : of_server),
      decided_(decided),
      add_server_(std::move(add_server)),
      resume_(resume),
      observed_(job) {
  if (job.local_updates > 0) {
    local_.emplace(workers_config(config), *network_, parts_);
  }
  if (rank_ == 0 && !config.dry.empty()) {
    dry_run_.emplace(job.tensors, codec_list(config.dry), job.policy, job.seed);
  }
  if (rank_ == 0 && config.observe_steps > 0 && hooks.on_observation)
    observer_.emplace(observed_, 0);
  if (resume_ != nullptr) go_on_from_checkpoint();
  if (rank_ == 0 && decided_.rungs != nullptr) {
    pilot_.emplace(
        job_, budget_bytes_a_day(config.budget), transport_, *decided_.rungs,
        [this](const CodecDecisions& all) {
          if (hooks_.on_decision) hooks_.on_decision(all);
        },
        resume_ != nullptr ? decisions_in(resume_->fact(0, kDecisionsFact)) : CodecDecisions(),
        hooks.replay);
  }
}

void TrainWorker::go_on_from_checkpoint() {
  const int rank = transport_.rank();
  resume_->read_parameters(kModelGroup, rank, network_->parameters());
  resume_->read_parameters(kStatisticsGroup, rank, network_->statistics());
  for (const Part& part : parts_) {
    const std::uint64_t steps = resume_->step();
    if (descent_)
      resume_->read_descent(*descent_, part, rank, exchanges_up_to(steps, job_, decided_.rungs));
    if (shared_) {
      resume_->read_part(job_.keeps_shared_copy() ? kSharedGroup : kModelGroup, part,
                         values_in(*shared_, part));
    }
    if (local_) resume_->read_descent(*local_, part, rank, steps, kLocal);
  }
  sampler_.seek(resume_->step());
  losses_ = doubles_in(resume_->fact(rank, kLossesFact));
  loss_watch_.resume(doubles_in(resume_->fact(rank, kLossWatchFact)));
  take_over_totals();
}

// Its own, and where workers are fewer now those of every one whose place is left.
void TrainWorker::take_over_totals() {
  const auto of = [this](int rank) {
    const std::string text = resume_->fact(rank, kTotalsFact);
    return text.empty() ? Totals{.since = resume_->step()} : totals_in(doubles_in(text));
  };
  before_ = of(transport_.rank());
  for (int rank = transport_.rank() + config_.job.workers; rank < resume_->nodes();
       rank += config_.job.workers) {
    before_.take_over(of(rank));
  }
}

Totals TrainWorker::totals_so_far() const {
  Totals totals = before_;
  totals.seconds += seconds_of_training();
  totals.take_over({.steps = steps_,
                    .cpu_seconds = processor_seconds() - cpu_start_ - observing_cpu_seconds_,
                    .counters = communicator_->counters()});
  return totals;
}

// Of this step, where codecs take turns.
std::string TrainWorker::codec_in_turn() const {
  if (pilot_) return pilot_->codec(step_);
  if (!job_.ladder) return {};
  const std::uint64_t exchange = (step_ - 1) / job_.steps_a_round() + 1;
  return job_.ladder->codecs[job_.ladder->rung(exchange)];
}

bool TrainWorker::exchanges_every_step() const {
  if (decided_.rungs == nullptr || job_.ladder->steps.empty()) return job_.local_updates == 0;
  return job_.ladder->steps[job_.ladder->rung(decided_.rungs->exchange_of(step_))] == 1;
}

// Of the step that begins, before anything of it is encoded.
void TrainWorker::know_codec() {
  if (decided_.rungs == nullptr) return;
  const std::uint64_t exchange = decided_.rungs->exchange_of(step_);
  if (decided_.end != nullptr) decided_.end->wait(exchange, job_.wait_limits());
  if (!pilot_ || decided_.rungs->last_step(exchange - 1) + 1 != step_) return;
  if (pilot_->measures_arrivals(exchange)) pull(0, job_.tensors.size());
  pilot_->begin(exchange, seconds_of_training(), communicator_->counters());
}

void TrainWorker::save_if_due() {
  const std::uint64_t done = step_ - 1;
  const std::uint64_t begun = resume_ != nullptr ? resume_->step() : 0;
  if (job_.state_steps == 0 || done < begun || done == 0 || !hooks_.on_checkpoint) return;
  if (done == begun && !config_.elastic) return;
  if (done % job_.state_steps == 0 || done == stop_.state_after()) save();
}

void TrainWorker::save() {
  pull(0, job_.tensors.size());
  CheckpointWriter checkpoint(transport_.rank(), step_ - 1, job_);
  checkpoint.add_exchange(communicator_->state(), parts_);
  const bool counts_for_all = rank_ == 0 || traits_.averages_weights || config_.elastic;
  if (counts_for_all || job_.keeps_shared_copy()) {
    checkpoint.add_parameters(kModelGroup, network_->parameters());
  }
  for (const Part& part : parts_) {
    if (descent_ && counts_for_all) checkpoint.add_descent(*descent_, part);
  }
  for (const Part& part : parts_) {
    if (local_) checkpoint.add_descent(*local_, part, kLocal);
  }
  if (rank_ == 0 || config_.elastic) {
    checkpoint.add_parameters(kStatisticsGroup, network_->statistics());
  }
  if (add_server_) add_server_(checkpoint);
  if (pilot_) checkpoint.add_fact(kDecisionsFact, text_of(pilot_->decisions()));
  checkpoint.add_fact(kLossesFact, text_of(losses_));
  checkpoint.add_fact(kLossWatchFact, text_of(loss_watch_.state()));
  checkpoint.add_fact(kTotalsFact, text_of(numbers_of(totals_so_far())));
  hooks_.on_checkpoint(checkpoint.take());
}

// Where nothing but pull() changes the replica, the update needs no model beside it. With local
// updates it has the communicator's shared one, to the bit.
Update TrainWorker::own_update(const TrainConfig& config) {
  if (job_.local_updates > 0) {
    shared_ = Network::make(config.model, config.classes, job_.seed, config.dropout);
  }
  descent_.emplace(owners_config(config), shared_ ? *shared_ : *network_, parts_,
                   rate_gain(config, job_));
  return [this](const Part& part, std::span<const float> mean, std::span<float> delta) {
    descent_->propose_step(part.number, mean, delta);
    if (!shared_) return;
    std::ranges::transform(values_in(*shared_, part), delta, values_in(*shared_, part).begin(),
                           std::plus<>());
  };
}

std::unique_ptr<Network> TrainWorker::take_network() {
  if (!shared_) return std::move(network_);
  for (std::size_t i = 0; i < network_->statistics().size(); ++i) {
    std::ranges::copy(values_of(network_->statistics()[i]),
                      values_of(shared_->statistics()[i]).begin());
  }
  return std::move(shared_);
}

double TrainWorker::seconds_of_training() const {
  return seconds_since(start_) - observing_seconds_;
}

template <typename Task>
void TrainWorker::apart_from_training(const Task& task) {
  const Clock::time_point begin = Clock::now();
  const double cpu_begin = processor_seconds();
  task();
  observing_seconds_ += seconds_since(begin);
  observing_cpu_seconds_ += processor_seconds() - cpu_begin;
}

void TrainWorker::observe_if_due() {
  if (!observer_) return;
  // Workers that do not wait for each other may skip the step in which one is due.
  const auto due_from = [every = config_.observe_steps](std::uint64_t step) {
    return (step + every - 2) / every * every + 1;
  };
  if (next_observed_ == 0) next_observed_ = due_from(step_);
  if (step_ < next_observed_) return;
  next_observed_ = due_from(step_ + 1);
  pull(0, job_.tensors.size());
  if (job_.ladder) {
    observed_.push_codec = codec_in_turn();
    observed_.local_updates = exchanges_every_step() ? 0 : job_.local_updates;
    observer_.emplace(observed_, 0);
  }
  apart_from_training([this] {
    const TestOutcome outcome = test_of(*network_, test_);
    observation_.emplace(Observation{.step = step_,
                                     .seconds = seconds_of_training(),
                                     .test_accuracy = outcome.accuracy,
                                     .test_loss = outcome.loss,
                                     .tensors = {}});
    observation_->tensors.resize(job_.tensors.size());
    observed_residuals_ = communicator_->residuals();
  });
}

void TrainWorker::observe(std::size_t tensor, std::span<const float> gradient) {
  apart_from_training([&] {
    const auto weights = values_of(network_->parameters()[tensor]);
    observation_->tensors[tensor] = observer_->look(
        tensor, step_, traits_.averages_weights ? weights : gradient, observed_residuals_[tensor]);
  });
}

void TrainWorker::report_observation() {
  apart_from_training([this] { hooks_.on_observation(*observation_); });
  observation_.reset();
}

void TrainWorker::run() {
  start_ = Clock::now();
  cpu_start_ = processor_seconds();
  threads_ = make_codec_threads(config_, job_.workers + server_nodes(job_));
  // Not before: from here on nobody else receives at this end of the network.
  std::optional<NodeState> state;
  if (resume_ != nullptr) state = resume_->exchange_of(transport_.rank());
  communicator_ =
      make_communicator(job_, transport_, update_, threads_.get(), state ? &*state : nullptr);
  state.reset();
  for (step_ = communicator_->begin_step(); !stop_.passed(step_);
       step_ = communicator_->begin_step()) {
    know_codec();
    save_if_due();
    observe_if_due();
    take_step();
  }
  if (stop_.state_after() != 0 || config_.elastic) save_if_due();
  std::vector<std::span<float>> parameters;
  for (const auto& parameter : network_->parameters()) parameters.push_back(values_of(parameter));
  communicator_->finish(parameters);
  totals_ = totals_so_far();
  if (dry_run_ && hooks_.on_dry_run) hooks_.on_dry_run(*dry_run_);
}

void TrainWorker::trace(TraceKind kind, std::size_t tensor) const {
  if (rank_ == 0 && hooks_.on_event) hooks_.on_event({kind, step_, tensor});
}

void TrainWorker::pull(std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    communicator_->pull(i, values_of(network_->parameters()[i]));
    trace(TraceKind::kPulled, i);
  }
}

void TrainWorker::push(std::size_t tensor, std::span<const float> gradient) {
  if (observation_) observe(tensor, gradient);
  if (dry_run_) apart_from_training([&] { dry_run_->look(tensor, step_, gradient); });
  communicator_->push(tensor, local_ ? update_locally(tensor, gradient) : gradient);
  trace(TraceKind::kPushed, tensor);
}

// The tensor's values after a step of this worker's own.
std::span<const float> TrainWorker::update_locally(std::size_t tensor,
                                                   std::span<const float> gradient) {
  for (const Part& part : parts_) {
    if (part.tensor != tensor) continue;
    local_delta_.resize(part.elems);
    local_->take_step(part.number, gradient.subspan(part.begin, part.elems), local_delta_);
  }
  return values_of(network_->parameters()[tensor]);
}

// What keeps a batch that is not like the others from moving the model far. A gradient whose length
// is not finite stays as it is, for the exchange to deal with.
void TrainWorker::clip_held() {
  double squares = 0;
  for (const auto& [tensor, gradient] : held_) {
    for (const float value : gradient) squares += static_cast<double>(value) * value;
  }
  const double norm = std::sqrt(squares);
  if (!(norm > config_.clip && std::isfinite(norm))) return;
  const auto factor = static_cast<float>(config_.clip / norm);
  for (auto& [tensor, gradient] : held_) {
    for (float& value : gradient) value *= factor;
  }
}

void TrainWorker::push_held() {
  if (config_.clip > 0) clip_held();
  for (const auto& [tensor, gradient] : held_) push(tensor, gradient);
  held_.clear();
}

void TrainWorker::watch(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > kFinalLossSteps) losses_.pop_front();
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  loss_watch_.add(step_, sum / static_cast<double>(losses_.size()));
  if (std::isfinite(loss) || config_.keep_going) return;
  stop_.end(step_, not_finite_sentence(step_));
}

void TrainWorker::take_step() {
  const bool slowest = rank_ + 1 == static_cast<std::size_t>(config_.job.workers);
  const auto least =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(
          config_.compute_ms * (slowest ? config_.slowest : 1)));
  const Clock::time_point computed = Clock::now() + least;
  const std::uint64_t number = sampler_.batches();
  sampler_.next(indices_);
  const Batch& batch = batches_.make(indices_, number);
  std::optional<ComputeTurn> turn(std::in_place, slots_);
  const auto outcome = network_->step(
      batch,
      {.before_layer = [&](std::size_t first,
                           std::size_t count) { turn->apart([&] { pull(first, count); }); },
       .backward_begins =
           [&] {
             if (config_.compute_ms > 0)
               turn->apart([&] { std::this_thread::sleep_until(computed); });
             trace(TraceKind::kBackwardBegin);
           },
       .on_gradient =
           [&](std::size_t i, const float* gradient, std::size_t elems) {
             if (config_.clip > 0 || local_) {
               held_.emplace_back(i, std::vector<float>(gradient, gradient + elems));
             } else {
               turn->apart([&] { push(i, {gradient, elems}); });
             }
           }},
      (static_cast<std::uint64_t>(rank_) << 40U) + number);
  turn.reset();
  trace(TraceKind::kBackwardEnd);
  push_held();
  ++steps_;
  watch(outcome.loss);
  if (observation_) report_observation();
  if (rank_ != 0 || !hooks_.on_step) return;
  hooks_.on_step(
      {.step = step_,
       .loss = outcome.loss,
       .accuracy = static_cast<double>(outcome.right) / static_cast<double>(batch.label_count),
       .seconds = seconds_of_training(),
       .diverged_step = loss_watch_.diverged_step(),
       .codec = codec_in_turn(),
       .counters = communicator_->counters()});
}

}  // namespace tersewire::trainer
