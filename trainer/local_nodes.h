// The nodes of a training job that run in this process, each in a thread: workers and servers, and
// at rank 0 what became of the job.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainer/global_model.h"
#include "trainer/node_report.h"
#include "trainer/train.h"
#include "trainer/train_worker.h"

namespace tersewire::trainer {

inline constexpr const char* kInProcess = "in-process";

class LocalNodes {
 public:
  // For a configuration that has been checked. Everything given must outlive it; the ends are in
  // the order of ranks.
  LocalNodes(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
             const std::vector<std::unique_ptr<Transport>>& ends);

  // The whole job; throws what went wrong first. The ends are not used after it.
  void run();

  // What the job came to. Requires rank 0 to be here, and run().
  [[nodiscard]] TrainResult result() const;

 private:
  [[nodiscard]] bool is_worker(int rank) const { return rank < config_.workers; }
  [[nodiscard]] int nodes() const { return config_.workers + config_.servers; }

  void run_first(Worker& worker, SortingTransport& end);
  void run_worker(Worker& worker, Transport& end);
  void run_one_server(Transport& end);
  void compare_start(const Incoming& message) const;
  void take_worker(const Incoming& message, const std::vector<std::uint64_t>& checksums);
  void take_server(const Incoming& message);

  const TrainConfig& config_;
  const DataSplits& data_;
  const TrainHooks& hooks_;
  const std::vector<std::unique_ptr<Transport>>& ends_;
  Job job_;
  std::vector<int> owners_;  // of tensors
  StartReport start_;
  StopPoint stop_;
  // In the processes of servers, and of rank 0, which measures what became of it.
  std::unique_ptr<GlobalModel> global_;
  std::optional<SortingTransport> first_;  // rank 0's end
  std::vector<std::unique_ptr<Worker>> workers_;

  // At rank 0, by number.
  std::vector<WorkerReport> worker_reports_;
  std::vector<ServerReport> server_reports_;
  double seconds_ = 0;
};

// The job as the library takes it, for this model.
Job job_of(const TrainConfig& config, const std::vector<Network::Parameter>& parameters);

}  // namespace tersewire::trainer
