// A worker of a job whose computation is waiting (exchange_bench.h says how).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/bench/gradient_source.h"
#include "apps/bench/round_transport.h"
#include "tersewire/bytes.h"
#include "tersewire/communicator.h"

namespace tersewire::bench {

// How long a worker computes and what it measures.
struct WaitingWorkerConfig {
  double compute_seconds = 0;       // a step
  std::uint64_t warm_up_steps = 0;  // not measured
  std::uint64_t steps = 1;          // measured, after those
};

// What one worker measured, a step.
struct WorkerMeasures {
  double step_seconds_median = 0;
  double push_bytes = 0;
  double pull_bytes = 0;
  double codec_seconds = 0;
};

// What the node of this rank does with a mean gradient, where that is its part: plain descent.
Update update_of(const Job& job, int rank);

// One thread; everything given must outlive it.
class WaitingWorker {
 public:
  WaitingWorker(const WaitingWorkerConfig& config, const Job& job, const GradientSource& gradients,
                RoundTransport& transport);

  // The whole job. Throws like Communicator.
  WorkerMeasures run();

 private:
  using Clock = std::chrono::steady_clock;

  // What has been counted when a step's parameters are there, on all workers unless there are
  // backups, and nothing of it is sent.
  struct Snapshot {
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    double codec_seconds = 0;
  };

  std::uint64_t begin_step();
  void forward();
  void backward();
  void finish();
  Snapshot snapshot();
  [[nodiscard]] WorkerMeasures measures(const Snapshot& from, const Snapshot& to,
                                        std::uint64_t computed);

  WaitingWorkerConfig config_;
  const Job& job_;
  const GradientSource& gradients_;
  RoundTransport& transport_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<Floats> parameters_;
  Clock::duration forward_slice_{};  // of a weight; the backward pass takes two
  std::uint64_t step_ = 0;
  std::uint64_t round_ = 0;  // the first of the steps between two exchanges
  Clock::time_point round_began_;
  Clock::time_point accelerator_free_;
  std::vector<double> step_seconds_;  // measured
};

}  // namespace tersewire::bench
