// The application's interface: it names its tensors once, then pushes gradients and pulls
// parameters tensor by tensor, as the backward and the forward pass reach them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/state.h"
#include "tersewire/tensor.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"

namespace tersewire {

// Codecs that take turns in a job, from the lightest to the strongest. Its functions return the
// same on every node, whenever they are called; any thread that encodes calls them, and an
// exception from them ends the job. They must not call the job's communicator.
struct CodecLadder {
  std::vector<std::string> codecs;  // one per rung, at least one
  // Which codec encodes an exchange's data: a step's, if every step has an exchange.
  std::function<std::size_t(std::uint64_t exchange)> rung;
  // With Job::local_updates: each rung's steps per round, a divisor of local_updates, which is the
  // maximum, and the step that an exchange ends with, from the steps of all rungs up to it; for
  // exchange 0 that is 0. A round of K steps begins after a multiple of K.
  std::vector<int> steps = {};
  std::function<std::uint64_t(std::uint64_t exchange)> last_step = {};
  // Which encode what servers send, one per rung; none: `codecs`.
  std::vector<std::string> pull_codecs = {};
};

// A job's settings, which must be the same on every node. Ranks 0 .. workers-1 are workers, the
// following ranks are servers.
struct Job {
  std::vector<TensorInfo> tensors;  // in forward order
  int workers = 1;
  // Nodes in addition to the workers; without a value, as many as the exchange needs
  // (server_nodes()). The parts of tensors are spread over parameter and gradient servers.
  std::optional<int> servers;
  // A value of `servers` for parameter-server and gradient-server: no nodes besides the workers;
  // each worker serves a share of the parts in a separate thread.
  static constexpr int kColocated = -1;
  // Which node sends what to whom, as NAME or NAME:KEY=VALUE,... (docs/exchanges.md):
  //   parameter-server  gradients to servers that own the model, model deltas back
  //   gradient-server   gradients to servers, mean gradients back; each worker keeps the model
  //   aggregator-tree   gradients up a tree of aggregators, model deltas down
  //   all-gather        gradients from each worker to every other; no servers
  //   ring              partial sums from worker to worker, then the sums; no servers
  //   hierarchical-ring rings of groups of workers; servers where they are the top of a tree
  //   weight-average    weights, every K steps, from each worker to others; each gives its own
  //                     gradient to its Update, in push(); no servers
  std::string exchange = "parameter-server";
  std::string push_codec = "3lc";  // for gradients, unless the policy says otherwise
  std::string pull_codec = "3lc";  // for what servers send: model deltas or mean gradients
  std::string policy = "auto";     // see policy.h; applied to both directions
  // Replaces both codecs. When another codec's turn comes, it takes over the residual; if it keeps
  // none, the residual goes into the first data that it encodes. For jobs whose workers wait for
  // each other, and exchange gradients in every step or make local updates; the latter without
  // fragments and delay, and as often as the ladder says.
  std::shared_ptr<const CodecLadder> ladder;
  // Stochastic codecs derive their random numbers from it, the sender, the tensor and the step.
  std::uint64_t seed = 0;
  // A tensor is updated as soon as workers - backup_workers gradients for the latest model have
  // arrived (3LC section 2.1); later ones return to their sender's residual if the codec keeps one,
  // and are dropped if it does not. With a staleness they go into the next version instead.
  int backup_workers = 0;
  // Parts with the same route share buckets of at least this many bytes of gradients, sent
  // in the order of the backward pass. A worker pushes up to 8 buckets' bytes ahead of the slowest
  // (at least 8 MiB if this is not set), or one longer part: a node must be able to hold that, and
  // one more message, from each worker. Without a value the job determines their size
  // (docs/exchanges.md, "Buckets").
  std::optional<std::size_t> bucket_bytes;
  // A tensor is split into parts of at most this many values (a multiple of 4); where servers share
  // the model, some parts are shorter so that each server has an equal share. A part has its own
  // scale and residual, and its own frame.
  std::size_t part_values = kDefaultPartValues;
  // Shorter parts stay in a core's cache from one pass to the next, and have finer scales, which
  // makes some codecs' payloads twice as long (evidence/codec-speed, "Parts").
  static constexpr std::size_t kDefaultPartValues = std::size_t{1} << 20;
  // A value of `part_values`: one scale per tensor, as in the papers, and one owner.
  static constexpr std::size_t kWholeTensors = ~std::size_t{0};
  // Infrequent communication (3LC, section 5.1): each worker adds up the gradients of this many
  // steps and exchanges their mean. The model changes once per this many steps.
  int local_steps = 1;
  // Local updates (local SGD, DiLoCo): each worker updates its parameters locally for this many
  // steps, then sends its distance from the shared model, shared - own, as a gradient of that
  // model. The model owner's Update is the outer optimizer. push() takes the worker's parameters
  // after its own step instead of a gradient. 0: workers exchange gradients. Not with local_steps,
  // nor for weight-average.
  int local_updates = 0;
  // With local_updates (Streaming DiLoCo, Douillard et al. 2025, sections 2.1 and 2.2): this many
  // groups of parts, as even as parts allow, take turns, one in each local_updates / fragments
  // steps, which must be a whole number. Each is exchanged once in local_updates steps, so a link
  // carries only one group's data at a time. Not with backup workers, nor with scaler sharing.
  int fragments = 1;
  // A fragment's result is applied this many steps, fewer than a turn has, after its exchange
  // began: meanwhile workers continue with their own values, which hides the exchange. They add
  // how far they came in these steps to the result.
  int delay = 0;
  // Servers that do not wait (stale-synchronous; docs/exchanges.md, "Servers that do not wait"): a
  // worker may be this many steps ahead of the slowest. The model gets a new version when a worker
  // that has the latest one has pushed, or, with backup workers, when all but that many have;
  // slower workers' pushes go into the next version as they arrive, and these workers continue with
  // the latest, skipping the steps in between. 0: in lock-step. For parameter-server and
  // gradient-server without scaler sharing; not with local_updates or raw_from_all.
  int staleness = 0;
  // A value of `staleness`: no limit, no worker waits for the slowest.
  static constexpr int kUnbounded = -1;
  // Whether every worker sends a tensor uncompressed in a step where it is not finite on one
  // worker, rather than only that worker. Workers agree on it before each bucket is encoded, which
  // costs two small messages per worker and bucket, one round trip, and a copy of the gradients.
  // Not for jobs with backup workers, nor for weight-average:mode=asynchronous.
  bool raw_from_all = false;
  // This many exchanges, from the first on, are not compressed, and residuals do not change.
  std::uint64_t warm_up_steps = 0;
  // Whether Communicator::undo() may be called, which takes a copy of all residuals in each step.
  // For workers that take means where they own the model: gradient-server with colocated servers,
  // all-gather, and rings without groups.
  bool undoable = false;
  // Once per this many exchanges, from the first on, and at the end, workers compare checksums of
  // their parameters; if replicas have diverged, the job ends. 0: never.
  std::uint64_t checksum_steps = 100;
  // Once per this many steps servers save their state (run_server()): with the workers' state after
  // the same step (Communicator::state()) the job can be resumed. A multiple of local_steps or
  // local_updates, and of weight-average's `every`. With a staleness every worker takes such a
  // step, and all wait for each other there.
  // 0: never. Otherwise not with backup workers, nor with weight-average:mode=asynchronous, where
  // steps of different workers overlap and no consistent state of all nodes exists.
  std::uint64_t state_steps = 0;
  // With state_steps, one more step after which servers save their state, a multiple of the same
  // numbers; 0: none. It may be set while the job runs, provided that no worker has pushed in that
  // step yet: a job that is about to be ended can then be resumed from its last step. Must outlive
  // the job; may be null, and must be null with a staleness.
  const std::atomic<std::uint64_t>* state_also_after = nullptr;
  // Whether what saves one server's state waits for that of another (run_server()): states are then
  // handed over when the results of their step have been sent, since a worker pushes no more to the
  // other server before it has them. With parameter-server and gradient-server.
  bool servers_save_together = false;
  // A node that waits for a message ends the job if another has given no sign of life for this
  // long. A node may compute, evaluate or save for longer: its transport reports that it is alive.
  std::chrono::milliseconds deadline = WaitLimits().deadline;
  // It also ends the job if nothing has arrived for this long although all others are alive: set it
  // longer than any node computes, evaluates or saves without sending anything.
  std::chrono::milliseconds progress_limit = WaitLimits().progress_limit;

  [[nodiscard]] WaitLimits wait_limits() const { return {deadline, progress_limit}; }
  // Whether workers' own parameters differ from the shared ones when a state is taken.
  [[nodiscard]] bool keeps_shared_copy() const {
    return local_updates > 0 && (fragments > 1 || delay > 0);
  }
  // Whether all workers compute every step from the same version of the model.
  [[nodiscard]] bool in_lock_step() const { return staleness == 0; }
  // From one exchange of a part to the next.
  [[nodiscard]] std::uint64_t steps_a_round() const {
    return static_cast<std::uint64_t>(local_updates > 0 ? local_updates : local_steps);
  }
};

// The traffic over the transport and the work for it, counted since the start.
struct Counters {
  std::uint64_t pushed_bytes = 0;  // whole messages, header and frames included
  std::uint64_t pulled_bytes = 0;
  std::uint64_t pushed_values = 0;  // values that those bytes encode
  std::uint64_t pulled_values = 0;
  // Parts of tensors sent uncompressed because of a NaN or an infinity; with Job::raw_from_all it
  // may be another worker's.
  std::uint64_t not_finite_tensors = 0;
  std::uint64_t unused_pushes = 0;  // arrived too late and went back to the residual
  double encode_seconds = 0;        // processor time of the calling thread
  double decode_seconds = 0;
  double wait_seconds = 0;      // elapsed, in pull() for data that had not arrived
  double exchange_seconds = 0;  // elapsed, from a step's first push until all had arrived
};

// A worker's view of a job. One thread at a time, but a second one may wait in mean(), and any may
// read counters() and encoded_bytes().
//
// Per step: begin_step(); then for each tensor, in forward order, pull() just before it is used;
// then for each tensor, in backward order, push() as soon as its gradient is ready. Every tensor is
// pushed in every step: the next begin_step(), or finish(), throws kFailedPrecondition otherwise.
// After the last step, the same for all workers: finish(), and no other call; with backup workers
// also where begin_step() returns a later step, in which nothing is pushed. Applications that
// apply gradients elsewhere take their mean() in the same step instead, and pull nothing. Every
// function throws kAborted if another node failed, kDeadlineExceeded if nothing arrived within
// Job::deadline or Job::progress_limit and kDataLoss for a malformed message; the job is then over
// on every node.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Chooses the step that this worker computes next, and returns its number, from 1. Without backup
  // workers and staleness that is the previous one plus one; a worker that others have overtaken
  // skips to the latest.
  virtual std::uint64_t begin_step() = 0;

  // Brings `parameters` up to date with the step begun; they must hold the result of this tensor's
  // last pull() (before the first: the initial model, the same on every node). Waits for this
  // tensor's model deltas only, decodes them and adds them. A second call in the same step changes
  // nothing. Cost: one pass if there is a delta.
  //
  // With Job::local_updates that happens in the first step of a round, where the shared model
  // replaces this worker's own parameters (which it has pushed); in other steps nothing changes.
  // With Job::fragments this holds for each fragment after its turn, with Job::delay that many
  // steps later.
  virtual void pull(std::size_t tensor, std::span<float> parameters) = 0;

  // Encodes the gradient, starts sending it and returns; waits first if too much of this worker's
  // pushed data is unanswered. With Job::raw_from_all a copy waits for the other workers, and is
  // sent once they have answered; begin_step() waits for the rest. Workers push tensors in the same
  // order. With Job::local_updates `gradient` is the tensor's parameters after the worker's own
  // step, and data is sent only in the last step of a round, or of a fragment's turn.
  virtual void push(std::size_t tensor, std::span<const float> gradient) = 0;

  // Waits for the mean gradient over the workers of a tensor that was pushed in this step, and
  // overwrites `mean` (as many values as the tensor) with it: the same bits on every worker. It is
  // sent when the tensors that share its buckets (Job::bucket_bytes) have been pushed too. Every
  // tensor's mean in a step is taken, in any order, before the next step begins; the job's Update
  // is not called. Another thread may push later tensors meanwhile, or wait for another tensor's
  // mean. A worker that has taken all means of the last step that it pushed may leave without
  // finish(). If servers own the model, it is the change that they have made of the mean, to be
  // added to the parameters: what pull() would add in the next step. Not for weight-average nor
  // with Job::local_steps, Job::local_updates, Job::staleness or Job::backup_workers:
  // kFailedPrecondition there, and for a tensor that was not pushed in this step or has been taken.
  // Cost: a pass over the values.
  virtual void mean(std::size_t tensor, std::span<float> mean) = 0;

  // Undoes the exchange of a tensor whose mean of this step was taken and that no worker applies:
  // what encoders keep of it is again what they kept before the step, bit for bit. The same on all
  // workers, before the tensor's next push; what ef=21 follows stays. Requires Job::undoable and
  // that mean: kFailedPrecondition. Cost: a copy of the tensor.
  virtual void undo(std::size_t tensor) = 0;

  // Reports in how many steps, since the start, the application has discarded its gradients instead
  // of pushing them. If workers report different numbers, one of them has skipped a step that
  // others take, and the job ends, with a sentence that names it. After begin_step(), in every step
  // or in none, the same on all workers; for jobs without checksum_steps (kFailedPrecondition).
  // Cost: a message of 40 bytes to worker 0.
  virtual void say_skipped(std::uint64_t steps) = 0;

  // Tells the servers that this worker is done, waits for the deltas of the last step and adds
  // them: `parameters[i]` is tensor i, as for pull(). An unfinished round is exchanged first;
  // fragments that have already had their turn stay the shared ones of that turn. With
  // Job::staleness it waits until every worker is done and the last pushes are in the model; all
  // replicas are then equal.
  virtual void finish(std::span<const std::span<float>> parameters) = 0;

  // What this node would lose in a restart, after the last step before the one begun. Required:
  // every tensor has been pulled since begin_step(), and none pushed; or all means of the step
  // begun have been taken, and it is the last in the state; or, without Job::local_steps and
  // Job::local_updates, no step has been begun. With Job::local_updates the step begun is a round's
  // first. The state of a colocated server is included. Throws kFailedPrecondition if a requirement
  // is not met, and kInvalidArgument for a job that has no states; the job continues all the same.
  // Cost: a copy of the residuals.
  virtual NodeState state() = 0;

  // What this worker's encoders hold back of its pushes, by tensor; nothing where the codec keeps
  // no residual. For monitoring, in any job and at any time. Cost: a copy of the residuals.
  [[nodiscard]] virtual std::vector<std::vector<float>> residuals() = 0;

  // What this worker has counted since the start. Any thread; it waits while a call computes. Cost:
  // a copy.
  [[nodiscard]] virtual Counters counters() const = 0;

  // By tensor, the bytes of the payloads that this worker's encoders have made since the start. A
  // ring's encoders know no tensors; their bytes are spread over the tensors by number of values.
  // Threads and cost as of counters().
  [[nodiscard]] virtual std::vector<double> encoded_bytes() const = 0;
};

// What a job's exchange means to the application.
struct ExchangeTraits {
  bool workers_own_model = false;  // each worker, rather than the servers
  // Whether workers exchange weights rather than gradients: no step has a mean gradient, and
  // between two averages workers' models differ.
  bool averages_weights = false;
  // Whether each server has a share of the tensors to itself: it may be on a worker's node
  // (Job::kColocated), and go on without the slowest workers.
  bool shards = false;
  // Whether workers may come and go between two steps: all take the same steps, and any number of
  // them will do.
  bool elastic = false;
};

// Of Job::exchange: a name, with or without parameters, which are not looked at. Throws
// kInvalidArgument for an exchange that does not exist.
const ExchangeTraits& exchange_traits(std::string_view exchange);

// The names allowed in Job::exchange, in the order of docs/exchanges.md.
std::vector<std::string_view> exchange_names();

// A run of a tensor's elements: the unit of scale and residual, of encoding, of frames and of
// ownership. A tensor is its parts in their order.
struct Part {
  std::size_t number;  // in the job: by tensor, then by position in the tensor
  std::size_t tensor;
  std::size_t begin;  // of its elements in the tensor: a multiple of 4
  std::size_t elems;

  bool operator==(const Part&) const = default;
};

// How a job's tensors are split; the same on every node. Throws kInvalidArgument for an invalid
// job.
std::vector<Part> job_parts(const Job& job);

// The model owner's optimizer: computes how a part changes when its mean gradient over the workers
// is `mean_gradient`, and writes the change into `delta`, which holds zeros (both have part.elems
// values). It is called for a part once per exchange, in order; calls for a tensor's other parts
// may be on other nodes. Called by one thread at a time within a node, by different threads in
// different nodes, in the default floating point mode whatever mode the application's threads use.
// It must not call its communicator, which is at work meanwhile: kFailedPrecondition.
// If workers own the model, it must be the same function of its inputs so far on each of them:
// that, and the same mean gradients, keep their models bit-identical.
using Update = std::function<void(const Part& part, std::span<const float> mean_gradient,
                                  std::span<float> delta)>;

// The number of nodes that run run_server(): the ranks from `workers` on. Throws kInvalidArgument
// for an invalid job.
int server_nodes(const Job& job);

// Whether there are servers, ranks or colocated ones, which send with the pull codec. Throws
// kInvalidArgument for numbers of workers and servers that a job cannot have.
bool servers_encode(const Job& job);

// Whether the node of this rank needs an Update: each worker if workers own the model, each server
// if servers do, only the last one if it is the root of a tree, and each worker of a job with
// colocated servers. Throws kInvalidArgument for an exchange that does not exist.
bool needs_update(const Job& job, int rank);

// Makes the worker whose rank is transport.rank(). `update` is required if needs_update() says so,
// and is called in pull() and finish(), by weight-average in push(), or by the thread of a server
// on this node. `transport` and `pool` (optional threads for large tensors) must outlive it.
//
// `resume`, if given, is what state() returned on the node of this rank, in a job of as many
// workers and servers, or redistribute() for one: the communicator continues after that step, and
// every other node must too. begin_step() then returns the step after it, and parameters hold their
// values from when the state was taken. Needed during the call only.
//
// Throws kInvalidArgument for an invalid job, and for a state that is not this node's: of another
// rank, of a job with other numbers, or with lists that do not fit this job. The job is then over
// on every node, and its network; server_nodes() checks a job without one.
std::unique_ptr<Communicator> make_communicator(const Job& job, Transport& transport,
                                                const Update& update = {},
                                                ThreadPool* pool = nullptr,
                                                const NodeState* resume = nullptr);

// A network may carry one job after another, provided that every node has ended the first before
// any begins the next: synchronize them in between.
//
// Runs the server whose rank is transport.rank() until every worker is done: averages the gradients
// of each of its parts, in the order of ranks, calls `update` (if needs_update() says so), encodes
// the result once and sends the same bytes to every worker. Throws like Communicator; an exception
// from `update` or `save` ends the job.
//
// `save` gets the server's state after each step that is a multiple of Job::state_steps, once all
// of its parts are past that step and before any is past the next: no worker has pulled all of the
// step before `save` has returned on the servers of its parts (Job::servers_save_together: before
// `save` is called). `resume` is such a state, of the node of this rank; as for
// make_communicator().
Counters run_server(const Job& job, Transport& transport, const Update& update = {},
                    ThreadPool* pool = nullptr, const NodeState* resume = nullptr,
                    const SaveState& save = {});

// For each part, whether what workers push of it are differences (Encoder::sends_differences()).
std::vector<bool> followed_parts(const Job& job);

// For each part, the rank of the node whose server owns it; empty if no server owns a whole part.
std::vector<int> part_servers(const Job& job);

}  // namespace tersewire
