// One worker of a training job: its replica, its shard of the data, its end of the exchange.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/chooser/codec_pilot.h"
#include "trainer/loop/checkpoint_pieces.h"
#include "trainer/loop/compute_slots.h"
#include "trainer/loop/descent.h"
#include "trainer/loop/evaluation.h"
#include "trainer/loop/loss_watch.h"
#include "trainer/loop/observer.h"
#include "trainer/members/stop_point.h"
#include "trainer/members/totals.h"

namespace tersewire::trainer {

// Where the job chooses its codec: what this process knows of it, and but at rank 0 the end at
// which the node hears more.
struct Decided {
  DecidedRungs* rungs = nullptr;
  DecisionEnd* end = nullptr;
};

class TrainWorker {
 public:
  // What of a node's server goes into a checkpoint.
  using AddServer = std::function<void(CheckpointWriter&)>;

  // Everything given must outlive it. `of_server` is there where a server lives on this node that
  // owns a part of the model, `resume` where the job goes on from a checkpoint.
  TrainWorker(const TrainConfig& config, const Job& job, Transport& transport,
              const DataSplits& data, StopPoint& stop, ComputeSlots& slots, const TrainHooks& hooks,
              const Update& of_server, const Decided& decided, AddServer add_server,
              const CheckpointReader* resume);

  // All steps, until the job has ended for this worker.
  void run();

  [[nodiscard]] const Network& network() const { return *network_; }
  // The replica, after run(), when nothing else is asked any more.
  [[nodiscard]] std::unique_ptr<Network> take_network();
  // The same of what moves it, where workers own the model.
  [[nodiscard]] Descent take_descent() { return std::move(*descent_); }
  [[nodiscard]] Counters counters() const { return communicator_->counters(); }
  // Of the last steps.
  [[nodiscard]] const std::deque<double>& losses() const { return losses_; }
  [[nodiscard]] const LossWatch& loss_watch() const { return loss_watch_; }
  // With what was counted before a resumption.
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  [[nodiscard]] Update own_update(const TrainConfig& config);
  void trace(TraceKind kind, std::size_t tensor = 0) const;
  void pull(std::size_t first, std::size_t count);
  void push(std::size_t tensor, std::span<const float> gradient);
  void push_held();
  void clip_held();
  std::span<const float> update_locally(std::size_t tensor, std::span<const float> gradient);
  void go_on_from_checkpoint();
  void take_over_totals();
  [[nodiscard]] Totals totals_so_far() const;
  [[nodiscard]] std::string codec_in_turn() const;
  [[nodiscard]] bool exchanges_every_step() const;
  void know_codec();
  void save_if_due();
  void save();
  void observe_if_due();
  void observe(std::size_t tensor, std::span<const float> gradient);
  void take_step();
  void watch(double loss);
  void report_observation();
  // What a task takes does not count as training.
  template <typename Task>
  void apart_from_training(const Task& task);
  [[nodiscard]] double seconds_of_training() const;

  const TrainConfig& config_;
  const Job& job_;
  const ExchangeTraits& traits_;  // of job_'s exchange
  std::vector<Part> parts_;
  Transport& transport_;
  std::size_t rank_;
  BatchMaker batches_;
  const Samples& test_;
  StopPoint& stop_;
  ComputeSlots& slots_;
  const TrainHooks& hooks_;
  std::unique_ptr<Network> network_;
  BatchSampler sampler_;
  // With local updates the model that descent_ moves: the worker's own is another.
  std::unique_ptr<Network> shared_;
  std::optional<Descent> descent_;  // where workers own the model
  std::optional<Descent> local_;    // with local updates
  std::vector<float> local_delta_;
  Update update_;
  Decided decided_;
  AddServer add_server_;
  const CheckpointReader* resume_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<DryRun> dry_run_;           // worker 0's, with TrainConfig::dry
  std::optional<CodecPilot> pilot_;         // worker 0's, where the job chooses its codec
  Job observed_;                            // with the codec of the observed step
  std::uint64_t next_observed_ = 0;         // 0: not known yet
  std::optional<Observer> observer_;        // worker 0's, where somebody wants to know
  std::optional<Observation> observation_;  // of this step
  std::vector<std::vector<float>> observed_residuals_;
  double observing_seconds_ = 0;
  double observing_cpu_seconds_ = 0;
  std::vector<std::uint32_t> indices_;
  // With TrainConfig::clip and with local updates: the step's gradients by tensor, in the order of
  // the backward pass, until the length of all is known, and the pass needs the parameters no more.
  std::vector<std::pair<std::size_t, std::vector<float>>> held_;
  std::deque<double> losses_;
  LossWatch loss_watch_;
  std::uint64_t steps_ = 0;
  std::uint64_t step_ = 0;
  std::chrono::steady_clock::time_point start_;
  double cpu_start_ = 0;
  Totals before_;  // a resumption
  Totals totals_;
};

}  // namespace tersewire::trainer
