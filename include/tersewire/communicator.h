// What an application holds: it names its tensors once, then pushes gradients and pulls parameters
// tensor by tensor, as the backward and the forward pass reach them.
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
#include <vector>

#include "tersewire/state.h"
#include "tersewire/tensor.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"

namespace tersewire {

// What a stale gradient counts (Job::staleness).
enum class StaleWeight : std::uint8_t {
  kNone,     // as much as any
  kInverse,  // divided by the versions that it is behind, where these are more than 1
};

// Codecs that take turns in a job, from the lightest to the strongest. What its functions say is
// the same on every node, whenever they are asked; any thread that encodes calls them, and what
// they throw ends the job.
struct CodecLadder {
  std::vector<std::string> codecs;  // of each rung, at least one
  // Which of them encodes what belongs to an exchange: to a step, where there is one in each.
  std::function<std::size_t(std::uint64_t exchange)> rung;
  // With Job::local_updates: of each rung the steps that a round has, a divisor of local_updates,
  // which is the most, and the step that an exchange ends with, by the steps of all rungs up to it;
  // of exchange 0 that is 0. A round of K steps begins after a multiple of K.
  std::vector<int> steps = {};
  std::function<std::uint64_t(std::uint64_t exchange)> last_step = {};
};

// What every node of a job must be given alike. Ranks 0 .. workers-1 are workers, the following
// ranks are servers.
struct Job {
  std::vector<TensorInfo> tensors;  // in forward order
  int workers = 1;
  // Nodes beside the workers; without a number as many as the exchange needs (server_nodes()).
  // The parts of tensors are spread over parameter and gradient servers.
  std::optional<int> servers;
  // A value of `servers` for parameter-server and gradient-server: no nodes beside the workers,
  // each of which serves a share of the parts in a thread of its own.
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
  std::string push_codec = "3lc";  // for gradients, where the policy does not say otherwise
  std::string pull_codec = "3lc";  // for what servers send: model deltas or mean gradients
  std::string policy = "auto";     // see policy.h; applied to both directions
  // In the place of both codecs. What a residual holds when another codec's turn comes goes on to
  // that one, and where it keeps none it is in the first thing that it encodes. For jobs whose
  // workers wait for each other, and exchange gradients in every step or make local updates; these
  // without fragments, delay and mix, and as often as the ladder says.
  std::shared_ptr<const CodecLadder> ladder;
  // What stochastic codecs draw their random numbers from, with the sender, the tensor and the
  // step.
  std::uint64_t seed = 0;
  // A tensor is updated as soon as workers - backup_workers gradients for the latest model have
  // arrived (3LC section 2.1); later ones return to their sender's residual where the codec keeps
  // one, and are dropped where it does not. With staleness or asynchronous they are in the next
  // version instead.
  int backup_workers = 0;
  // Parts that go the same way travel together, as buckets of at least so many bytes of
  // gradients, in the order of the backward pass. A worker pushes as many bytes as 8 of
  // them, and 8 MiB where this does not say, ahead of the slowest, or one longer part: that, and a
  // message more, from each worker is what a node must be able to hold. Without a number they are
  // sized by the job (docs/exchanges.md, "Buckets").
  std::optional<std::size_t> bucket_bytes;
  // A tensor is cut into parts of at most so many values (a multiple of 4), and where servers share
  // the model some by shorter ones, so that each has as much of it as the others. A part has its
  // own scale and residual, and travels in a frame of its own.
  std::size_t part_values = kDefaultPartValues;
  // Shorter parts stay in a core's cache from one pass to the next, and have finer scales, which
  // makes some codecs' payloads twice as long (docs/record.md, "Parts").
  static constexpr std::size_t kDefaultPartValues = std::size_t{1} << 20;
  // A value of `part_values`: one scale a tensor, as papers have it, and one owner.
  static constexpr std::size_t kWholeTensors = ~std::size_t{0};
  // Infrequent communication (3LC, section 5.1): each worker adds up the gradients of so many steps
  // and exchanges their mean. The model changes once in so many steps.
  int local_steps = 1;
  // Local updates (local SGD, DiLoCo): each worker changes its parameters by itself for so many
  // steps, and what travels then, as a gradient of the shared model, is how far it came from that:
  // shared - own. Update, where the model is owned, is the outer optimizer. push() takes the
  // worker's parameters after its own step in place of a gradient. 0: workers exchange gradients.
  // Not with local_steps, nor for weight-average.
  int local_updates = 0;
  // With local_updates (Streaming DiLoCo, Douillard et al. 2025, sections 2.1 and 2.2): so many
  // groups of parts, as even as parts allow, take turns, one in each local_updates / fragments
  // steps, which that must be a whole number of. Each is exchanged once in local_updates steps, so
  // that a link carries at once what one of them takes. Not with backup workers, nor with scaler
  // sharing.
  int fragments = 1;
  // So many steps after its exchange has begun, fewer than a turn has, what a fragment has become
  // is taken: meanwhile workers go on with their own values, and the exchange hides behind that.
  int delay = 0;
  // Whoever takes it keeps this share, 0 to below 1, of its own values (mix * own + (1 - mix) *
  // shared); unless said 0, and 1/2 with a delay. Above 0 not with codecs that keep a residual.
  std::optional<double> mix;
  // Servers that do not wait (stale-synchronous; docs/exchanges.md, "Servers that do not wait"): a
  // worker may be so many steps ahead of the slowest. The model gets a new version when a worker
  // that has the last one has pushed, or, with backup workers, when all but so many have; what
  // slower workers push is in the next version, as it comes, and they go on with the latest, over
  // the steps in between. 0: in lock-step. For parameter-server and gradient-server without scaler
  // sharing; not with local_updates or raw_from_all.
  int staleness = 0;
  // The same without a limit: nobody waits for the slowest.
  bool asynchronous = false;
  // What gradients count that were computed from an older version than the last.
  StaleWeight stale_weight = StaleWeight::kNone;
  // Whether a tensor that is not finite on one worker is sent uncompressed by every worker in that
  // step, rather than from that one alone. Workers agree on it before each bucket is encoded, which
  // costs two small messages a worker and bucket, the time of a round trip, and a copy of the
  // gradients. Not for jobs with backup workers, nor for weight-average:mode=asynchronous.
  bool raw_from_all = false;
  // So many exchanges, from the first on, are not compressed, and residuals stay as they were.
  std::uint64_t warm_up_steps = 0;
  // Once in so many exchanges, from the first on, and at the end, workers compare checksums of
  // their parameters, and a job whose replicas have drifted apart ends. 0: never.
  std::uint64_t checksum_steps = 100;
  // Once in so many steps servers save their state (run_server()), so that with that of the workers
  // after the same step (Communicator::state()) the job can be resumed; a multiple of local_steps
  // or local_updates, and of weight-average's `every`. With staleness or asynchronous every worker
  // takes such a step, and all wait for each other there.
  // 0: never. Otherwise not with backup workers, nor with weight-average:mode=asynchronous, where
  // steps of different workers overlap and no state of all nodes fits together.
  std::uint64_t state_steps = 0;
  // With state_steps, a step more after which servers save their state, a multiple of the same; 0:
  // none. It may be set while the job runs, by whoever knows that no worker has pushed in that step
  // yet: a job that is about to be ended can be resumed from its last step. Must outlive the job;
  // may be null, and must be with staleness and asynchronous.
  const std::atomic<std::uint64_t>* state_also_after = nullptr;
  // A node that waits for a message ends the job where another has given no sign of life for so
  // long. What a node computes, evaluates or saves may take longer: its transport speaks for it.
  std::chrono::milliseconds deadline = WaitLimits().deadline;
  // It ends the job, too, where nothing has arrived for so long though all others are alive: longer
  // than any node computes, evaluates or saves without sending anything.
  std::chrono::milliseconds progress_limit = WaitLimits().progress_limit;

  [[nodiscard]] WaitLimits wait_limits() const { return {deadline, progress_limit}; }
  [[nodiscard]] double share_kept() const { return mix.value_or(delay > 0 ? 0.5 : 0.0); }
  // Whether workers' own parameters are not the shared ones where a state is taken.
  [[nodiscard]] bool keeps_shared_copy() const {
    return local_updates > 0 && (fragments > 1 || delay > 0 || share_kept() > 0);
  }
  // Whether all workers compute every step from the same version of the model.
  [[nodiscard]] bool in_lock_step() const { return staleness == 0 && !asynchronous; }
  // From one exchange of a part to the next.
  [[nodiscard]] std::uint64_t steps_a_round() const {
    return static_cast<std::uint64_t>(local_updates > 0 ? local_updates : local_steps);
  }
};

// What crossed the transport and what was done for it, counted since the start.
struct Counters {
  std::uint64_t pushed_bytes = 0;  // whole messages, header and frames included
  std::uint64_t pulled_bytes = 0;
  std::uint64_t pushed_values = 0;  // values that those bytes stand for
  std::uint64_t pulled_values = 0;
  // Parts of tensors, sent uncompressed because of a NaN or an infinity, another worker's with
  // Job::raw_from_all.
  std::uint64_t not_finite_tensors = 0;
  std::uint64_t unused_pushes = 0;  // arrived too late and went back to the residual
  double encode_seconds = 0;        // processor time of the calling thread
  double decode_seconds = 0;
  double wait_seconds = 0;      // on the clock, in pull() for what had not arrived
  double exchange_seconds = 0;  // on the clock, from a step's first push until all had arrived
};

// A worker's view of a job. One thread at a time, except in mean(), in which a second one may wait.
//
// Per step: begin_step(); then for each tensor, in forward order, pull() just before it is used;
// then for each tensor, in backward order, push() as soon as its gradient is there. Every tensor is
// pushed in every step. After the last step, the same for all workers: finish(). Who applies
// gradients elsewhere takes their mean() in the same step instead, and pulls nothing. Every
// function throws kAborted where another node failed, kDeadlineExceeded where nothing arrived
// within Job::deadline or Job::progress_limit and kDataLoss for a malformed message; the job is
// then over on every node.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Chooses the step that this worker computes next, and returns its number, from 1. Without backup
  // workers and staleness that is the last one plus one; a worker that others have overtaken skips
  // to the latest.
  virtual std::uint64_t begin_step() = 0;

  // Brings `parameters`, which hold what the last pull() of this tensor left there (before the
  // first: the initial model, the same on every node), up to date with the step begun: waits for
  // this tensor's model deltas alone, decodes them and adds them. Called again in the same step, it
  // changes nothing. Cost: one pass where there is a delta.
  //
  // With Job::local_updates that is in the first step of a round, where what this worker came to
  // (and has pushed) gives way to the shared model; in the others it changes nothing. With
  // Job::fragments it is so of each fragment after its turn, with Job::delay so many steps later,
  // and Job::mix says how much of it gives way.
  virtual void pull(std::size_t tensor, std::span<float> parameters) = 0;

  // Encodes the gradient, starts sending it and returns; waits first where too much of what this
  // worker pushed is unanswered. With Job::raw_from_all a copy waits for the other workers, and is
  // sent in this or a later call; begin_step() waits for the rest. Workers push tensors in the same
  // order. With Job::local_updates `gradient` is the tensor's parameters after the worker's own
  // step, and nothing is sent but in a round's last step, or a fragment's turn's.
  virtual void push(std::size_t tensor, std::span<const float> gradient) = 0;

  // Waits for the mean gradient over the workers of a tensor that was pushed in this step, and
  // overwrites `mean` (as many values as the tensor) with it: the same bits on every worker. It
  // travels when the tensors that share its buckets (Job::bucket_bytes) have been pushed too. Of a
  // step every tensor's mean is taken, in any order, before the next begins; the job's Update is
  // not called. Another thread may push later tensors meanwhile, or wait for another one's mean. A
  // worker that has taken all means of the last step that it pushed may leave without finish(). For
  // jobs in which workers own the model, but not for weight-average nor with Job::local_steps,
  // Job::local_updates or Job::staleness: kFailedPrecondition there, and for a tensor that was not
  // pushed in this step or has been taken. Cost: a pass over the values.
  virtual void mean(std::size_t tensor, std::span<float> mean) = 0;

  // Gives back a mean that was taken and that no worker has applied: it is added to what each has
  // still to send of the tensor. The same on all workers, before the tensor's next push. A value
  // that is not finite is left out, as is what a codec without a residual made: that was delivered
  // whole. Cost: a pass over the values.
  virtual void give_back(std::size_t tensor, std::span<const float> mean) = 0;

  // Says in how many steps, since the start, the application has thrown its gradients away rather
  // than push them. Where workers say different numbers one of them has skipped a step that others
  // take, and the job ends, with a sentence that names it. After begin_step(), in every step or in
  // none, the same on all workers; for jobs without checksum_steps (kFailedPrecondition). Cost: a
  // message of 40 bytes to worker 0.
  virtual void say_skipped(std::uint64_t steps) = 0;

  // Tells the servers that this worker is done, waits for the deltas of the last step and adds
  // them: `parameters[i]` is tensor i, as for pull(). A round that has not ended is exchanged
  // first; fragments whose turn was before are the shared ones of then. With Job::staleness it
  // waits until every worker is done and the last pushes are in the model, and all replicas are
  // equal then.
  virtual void finish(std::span<const std::span<float>> parameters) = 0;

  // What this node would lose in a restart, after the last step before the one begun. Every tensor
  // must have been pulled since begin_step(), and none pushed; or all means of the step begun have
  // been taken, and it is the last in the state; or none has been begun. With Job::local_updates
  // the step begun is a round's first. Where the node has a colocated server, its state is in it.
  // Throws kFailedPrecondition where something is not so, and kInvalidArgument for a job that has
  // no states; the job goes on all the same. Cost: a copy of the residuals.
  virtual NodeState state() = 0;

  // What this worker's encoders keep back of what it pushes, as NodeState::pushed: for watching, in
  // any job and at any time. Cost: a copy of the residuals.
  [[nodiscard]] virtual std::vector<std::vector<float>> residuals() = 0;

  [[nodiscard]] virtual const Counters& counters() const noexcept = 0;

  // By tensor, the bytes of the payloads that this worker's encoders have made since the start. A
  // ring's, whose encoders know no tensors, are spread over them by their values.
  [[nodiscard]] virtual std::vector<double> encoded_bytes() const = 0;
};

// A run of a tensor's elements: the unit of scale and residual, of encoding and of frames, and of
// who owns what. A tensor is its parts in their order.
struct Part {
  std::size_t number;  // in the job: tensor by tensor, and in a tensor from its first element on
  std::size_t tensor;
  std::size_t begin;  // of its elements in the tensor: a multiple of 4
  std::size_t elems;

  bool operator==(const Part&) const = default;
};

// How a job's tensors are cut; the same on every node. Throws kInvalidArgument for a job that makes
// no sense.
std::vector<Part> job_parts(const Job& job);

// The model's owner: what changes a part when its mean gradient over the workers is
// `mean_gradient`? Writes the change into `delta` (part.elems values both). A part's calls come
// once an exchange, in their order; those of a tensor's other parts may come at other nodes. Called
// by one thread at a time within a node, by different threads in different nodes, in the default
// floating point mode whatever that of the application's threads is. Where workers own the model it
// must be the same function of what it was given so far on each of them: that, and the same mean
// gradients, keep their models equal to the bit.
using Update = std::function<void(const Part& part, std::span<const float> mean_gradient,
                                  std::span<float> delta)>;

// The nodes that run_server() is for: the ranks from `workers` on. Throws kInvalidArgument for a
// job that makes no sense.
int server_nodes(const Job& job);

// Whether each worker owns the model rather than the servers. Throws kInvalidArgument for an
// exchange that does not exist.
bool workers_own_model(const Job& job);

// Whether the node of this rank must be given an Update: each worker where workers own the model,
// each server where those do, only the last one where it is the root of a tree, and each worker of
// a job with colocated servers. Throws like workers_own_model().
bool needs_update(const Job& job, int rank);

// Makes the worker whose rank is transport.rank(). `update` is there where needs_update() says so,
// and is called in pull() and finish(), by weight-average in push(), or by the thread of a server
// on this node. `transport` and `pool` (optional threads for large tensors) must outlive it.
//
// `resume`, where there is one, is what state() returned on the node of this rank: the communicator
// goes on after that step, and every other node must too. begin_step() then returns the step after
// it, and parameters hold what they held when the state was taken. Needed during the call alone.
//
// Throws kInvalidArgument for a job that makes no sense, and for a state that is not this node's.
std::unique_ptr<Communicator> make_communicator(const Job& job, Transport& transport,
                                                const Update& update = {},
                                                ThreadPool* pool = nullptr,
                                                const NodeState* resume = nullptr);

// A network may carry one job after another, where every node has ended the first before any begins
// the next: let them tell each other.
//
// Runs the server whose rank is transport.rank() until every worker is done: averages the gradients
// of each of its parts, in the order of ranks, calls `update` (where needs_update() says so),
// encodes the result once and sends the same bytes to every worker. Throws like Communicator;
// whatever `update` or `save` throws ends the job.
//
// `save` gets the server's state after each step that Job::state_steps divides, once all of its
// parts are past that step and before any is past the next: no worker has pulled all of the step
// before `save` has returned on the servers of its parts. `resume` is such a state, of the node
// of this rank; as for make_communicator().
Counters run_server(const Job& job, Transport& transport, const Update& update = {},
                    ThreadPool* pool = nullptr, const NodeState* resume = nullptr,
                    const SaveState& save = {});

// The rank on whose node the server lives that owns each part; empty where no server owns a whole
// one.
std::vector<int> part_servers(const Job& job);

}  // namespace tersewire
