// The training loop: workers and servers as threads of this process, or of several, joined by the
// public API alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/dry_run.h"
#include "tersewire/transport.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/data/samples.h"
#include "trainer/files/checkpoint.h"
#include "trainer/loop/observation.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {

// One worker's step, as it ends. Bytes, values and seconds count from the start of train().
struct StepReport {
  std::uint64_t step = 0;
  double loss = 0;
  double accuracy = 0;  // of this step's batch, 0 to 1
  double seconds = 0;   // since the start
  // The step since which this worker's training has diverged (LossWatch).
  std::optional<std::uint64_t> diverged_step = {};
  std::string codec = {};  // that it was encoded with, where codecs take turns
  Counters counters;
};

// What happened inside a step, in the order in which it happened: for tests of the overlap.
enum class TraceKind : std::uint8_t { kPulled, kPushed, kBackwardBegin, kBackwardEnd };
struct TraceEvent {
  TraceKind kind;
  std::uint64_t step;
  std::size_t tensor;  // 0 for the passes
};

struct TrainHooks {
  // Called by worker 0's thread after each of its steps.
  std::function<void(const StepReport&)> on_step;
  // Called by worker 0's thread.
  std::function<void(const TraceEvent&)> on_event;
  // Called by worker 0's thread in the first step and then in each that comes observe_steps later.
  // Observing changes nothing that the job computes.
  std::function<void(const Observation&)> on_observation = {};
  // With TrainConfig::dry, called by worker 0's thread after its last step.
  std::function<void(const DryRun&)> on_dry_run = {};
  // Where the job chooses its codec, called by worker 0's thread with all decisions so far, after
  // each and after what came of it was seen.
  std::function<void(const CodecDecisions&)> on_decision = {};
  // Decisions of another run that are to be taken again, in place of any of its own; may be null.
  const CodecDecisions* replay = nullptr;
  // Called for each node here after every checkpoint_steps steps, and where there are such after
  // the last of a run that `stop` ends (except weight-average), by a thread of its own while the
  // job goes on; for one node at a time, in order, so that a node waits where its last call has not
  // returned. All nodes' together are a JobCheckpoint. When it is called for a node, every other's
  // call for the checkpoint two before has returned, and in a tree the one three before. What it
  // throws ends the job; train() returns when all calls have.
  std::function<void(NodeCheckpoint)> on_checkpoint = {};
  // Set it to end the run after the steps that are under way; may be null. A job of several
  // processes ends with kCancelled instead.
  const std::atomic<bool>* stop = nullptr;
  // With it `stop` ends a job of several processes, too, after a step that all nodes agree on,
  // where states can be saved after any (not with weight-average and staleness): called then, where
  // it is there and whichever node was asked to end the run, with that step.
  std::function<void(std::uint64_t last)> on_ending = {};
  // Ends the run after this step, if it does not end sooner; everything else stays as for its
  // number of steps.
  std::optional<std::uint64_t> last_step = {};
};

struct TrainResult {
  std::uint64_t steps = 0;          // computed, those before a resumption included
  std::uint64_t resumed_after = 0;  // steps; the busiest node is that since then
  // Steps before the first that is counted and timed: 0, except for a run whose checkpoint is of a
  // version that did not say what came before it.
  std::uint64_t counted_after = 0;
  std::uint64_t values = 0;    // in the model
  int servers = 0;             // nodes beside the workers
  bool servers_encode = true;  // with the pull codec, which nobody else uses
  // Whether the model measured is worker 0's replica, which all others equal, not the servers'.
  bool workers_own_model = false;
  double rate_gain = 1;  // what learning rates were multiplied by in the last step (rate_gain.h)
  double test_accuracy = 0;  // of the model, or of its moving average; 0 to 1
  double test_loss = 0;      // of the same: cross entropy, mean over the labels
  double final_loss = 0;     // mean over workers and their last 50 steps
  // The first step since which a worker's training has diverged (LossWatch) up to the end; the job
  // ended there where the loss was not finite, unless it was to keep going.
  std::optional<std::uint64_t> diverged_step;
  // The rank of the node whose TrainHooks::stop ended the run before its last step; 0 for any where
  // all are in one process.
  std::optional<int> stopped_by;
  // Why the run ended before its last step though nobody asked for it; empty where it did not.
  std::string ended_by;
  double seconds = 0;  // of worker 0's training, without loading data and without the test
  // Processor time of a worker's step without codecs, mean; at least TrainConfig::compute_ms.
  double compute_seconds = 0;
  double codec_seconds = 0;         // encoding and decoding at a worker and step, mean
  std::string parameters_checksum;  // XXH64 of the model, in hex
  // The model's parameters and statistics, by name.
  std::map<std::string, NodeCheckpoint::Array> model;
  Counters worker_counters;  // summed over workers
  // Of the node that most went through since resumed_after, server or worker, in both directions;
  // and the values that these bytes stand for.
  std::uint64_t busiest_node_bytes = 0;
  std::uint64_t busiest_node_values = 0;
};

// The job's data, as its model takes it. Throws like the load_data() of samples.h, and
// kInvalidArgument for a model that does not exist.
DataSplits load_data(const TrainConfig& config);

// Throws kInvalidArgument for a configuration that makes no sense, as far as that is known without
// the model's tensors and data: without libtorch, in milliseconds.
void check_settings(const TrainConfig& config);

// The same, and for one that makes no sense with its model and this data: what train() would refuse
// before it starts.
void check(const TrainConfig& config, const DataSplits& data);

// The codec for what servers send where none is named: `codec`, or for mean gradients under Adam
// adaptive_pull_codec()'s, of kAutoCodec kAutoPullWithoutResidual. Throws kInvalidArgument where
// exchange, optimizer or codec are no texts of such.
std::string default_pull_codec(const TrainConfig& config, const std::string& codec);

// The nodes beside the workers. Throws kInvalidArgument for a job that makes no sense, though not
// for one that has more servers than its model has parts.
int server_nodes(const TrainConfig& config);
// Whether there are servers, beside the workers or on their nodes, that send with the pull codec.
// Throws like server_nodes().
bool servers_encode(const TrainConfig& config);

// Throws kInvalidArgument where a network of `nodes` nodes is not what the job needs.
void check_nodes(const TrainConfig& config, int nodes);

// This process's ends of the job's network: those of all nodes for transport in-process, its own
// one for a transport between processes. Throws kInvalidArgument for a transport that does not
// exist, and like join_mpi_network().
std::vector<std::unique_ptr<Transport>> join_network(const TrainConfig& config);

// Runs this process's nodes of a job, whose ends those of join_network() are, and returns when they
// have ended: what the job came to where rank 0 is among them, else nothing. Every node is one
// thread; libtorch's own threads are held to one for the rest of the process, so that workers do
// not fight. The same configuration gives the same result, bit for bit, over every transport, where
// there are no backup workers. Throws Error for a configuration that makes no sense, where nodes
// were started with different arguments or data, and where workers end with different parameters;
// the job is then over on every node, and nothing of it is left running here.
//
// With `resume` the job goes on after that checkpoint's last step. Where workers and servers are as
// many as then, it ends as it would have without an interruption, to the bit; else residuals are
// spread over the nodes there are (tersewire/state.h), and each worker goes on in its new shard of
// the data at the batch of that number. Throws kFailedPrecondition where the checkpoint is of
// another model, optimizer or data set.
std::optional<TrainResult> train(const TrainConfig& config, const DataSplits& data,
                                 const TrainHooks& hooks,
                                 std::vector<std::unique_ptr<Transport>> ends,
                                 const JobCheckpoint* resume = nullptr);

// The same where all nodes are threads of this process.
TrainResult train(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
                  const JobCheckpoint* resume = nullptr);

// Why a run ends whose loss is not finite in this step.
std::string not_finite_sentence(std::uint64_t step);

// More than a job can have.
inline constexpr std::uint64_t kTooManySteps = 1'000'000'000'000'000;

// Steps in which each of `workers` workers sees its shard `epochs` times.
std::uint64_t steps_for_epochs(double epochs, std::size_t images, std::size_t workers,
                               std::size_t batch);

}  // namespace tersewire::trainer
