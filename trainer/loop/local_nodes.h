// The nodes of a training job that run in this process, each in a thread: workers and servers, and
// at rank 0 what became of the job.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/files/checkpoint_saver.h"
#include "trainer/loop/checkpoint_pieces.h"
#include "trainer/loop/descent.h"
#include "trainer/loop/evaluation.h"
#include "trainer/loop/train.h"
#include "trainer/loop/train_worker.h"
#include "trainer/members/decided_rungs.h"
#include "trainer/members/node_report.h"
#include "trainer/members/server_copy.h"

namespace tersewire::trainer {

class LocalNodes {
 public:
  // For a configuration that has been checked. Everything given must outlive it; the ends are in
  // the order of ranks.
  LocalNodes(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
             const std::vector<std::unique_ptr<Transport>>& ends,
             const JobCheckpoint* resume = nullptr);

  // The whole job; throws what went wrong first. The ends are not used after it.
  void run();

  // What the job came to. Requires rank 0 to be here, and run().
  [[nodiscard]] TrainResult result();

 private:
  [[nodiscard]] bool is_worker(int rank) const { return rank < job_.workers; }
  [[nodiscard]] int nodes() const { return job_.workers + server_nodes(job_); }

  // Servers after the workers, and those that live on a worker's node and own its share.
  [[nodiscard]] bool has_server(int rank) const {
    return !is_worker(rank) || !parts_owned_by(rank).empty();
  }

  // The parts of making it.
  void know_earlier_exchanges(const JobCheckpoint& resume);
  void check_data_of_checkpoint() const;
  void make_servers_model(std::unique_ptr<Network> initial);
  void end_together();
  void add_worker(Transport& end);

  void run_first(TrainWorker& worker, SortingTransport& end);
  void run_worker(TrainWorker& worker, Transport& end);
  void run_one_server(Transport& end);
  void take_first_workers();
  // What nodes talk through instead of the end that this process has joined the network with.
  [[nodiscard]] Transport& end_of(Transport& joined);
  [[nodiscard]] Update servers_update();
  // What a server of this rank owns.
  void add_server(int rank, CheckpointWriter& checkpoint) const;
  void save_server(const NodeState& state, int rank) const;
  [[nodiscard]] std::vector<Part> parts_owned_by(int rank) const;
  // Of an elastic job: those whose servers have a part of the model that would die with them.
  [[nodiscard]] ServerRing copying_ring() const;
  // A bound of the bytes that copies of its state take.
  [[nodiscard]] std::size_t most_server_bytes(int rank) const;
  // A part's values in the servers' model.
  [[nodiscard]] std::span<float> values_in(const Part& part) const;
  // Of each part that a server owns its values, then their moving average where one is kept.
  [[nodiscard]] std::vector<std::span<float>> memory_owned_by(int rank);
  // What such a server tells rank 0: the contents of that.
  [[nodiscard]] std::vector<float> told_by(int rank);
  [[nodiscard]] StartReport start_of(const TrainWorker& worker) const;
  void compare_start(const Incoming& message, const StartReport& own) const;
  void take_worker(const Incoming& message, const std::vector<std::uint64_t>& checksums);
  void take_server(const Incoming& message);
  [[nodiscard]] TestOutcome tested();

  const TrainConfig& config_;
  const DataSplits& data_;
  const std::vector<std::unique_ptr<Transport>>& ends_;
  CheckpointSaver saver_;
  TrainHooks hooks_;  // on_checkpoint hands over to that
  Job job_;
  const ExchangeTraits& traits_;       // of its exchange
  std::optional<DecidedRungs> rungs_;  // where the job chooses its codec
  std::vector<Part> parts_;
  std::vector<int> owners_;  // of parts
  StartReport start_;
  std::optional<CheckpointReader> resume_;  // where the job goes on from a checkpoint
  StopPoint stop_;
  ComputeSlots slots_;
  // The servers', in their processes and at rank 0, which measures what became of it, by worker 0's
  // statistics of batch normalization. Where workers own the model, its replica, after run().
  std::unique_ptr<Network> model_;
  std::optional<Descent> descent_;         // what moves it
  std::optional<StopEnd> stop_end_;        // of this process's only node
  std::optional<ServerCopyEnd> copy_end_;  // the same, where its server's part would die with it
  std::optional<SortingTransport> first_;  // rank 0's end
  std::deque<DecisionEnd> decision_ends_;  // of the other workers, with rungs_
  std::vector<std::unique_ptr<TrainWorker>> workers_;

  // At rank 0, by number.
  std::vector<WorkerReport> worker_reports_;
  std::vector<ServerReport> server_reports_;
};

// The job as the library takes it, with its model's tensors or with others. Throws kInvalidArgument
// for a model that does not exist, and for codecs that cannot take turns.
Job job_of(const TrainConfig& config);
Job job_of(const TrainConfig& config, std::vector<TensorInfo> tensors);

}  // namespace tersewire::trainer
