// What the workers of all exchanges have in common: the order of steps, of pulls and of pushes, how
// tensors are taken part by part, and the end of the job for everyone where something fails or
// replicas have drifted apart.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "at_once.h"
#include "node.h"
#include "node_state.h"
#include "placement.h"
#include "raw_agreement.h"
#include "replica_check.h"
#include "tersewire/communicator.h"

namespace tersewire {

// A Communicator, except for what travels where.
class Worker : public Communicator {
 public:
  Worker(std::shared_ptr<const Placement> placement, Transport& transport, ThreadPool* pool);
  ~Worker() override;

  // Before the first step: goes on after a state whose lists have been checked. Throws
  // kInvalidArgument where its residuals are not this worker's; its maker then ends the job.
  void resume(const NodeState& state);

  // Sorts in a message that has arrived: for whoever receives while the application computes
  // (progress.h). Ends the job where it throws.
  void take(Incoming incoming);
  // Whether a call that waits for something would find it now.
  [[nodiscard]] bool awaits_what_is_here() const;

  std::uint64_t begin_step() final;
  void pull(std::size_t tensor, std::span<float> parameters) final;
  void push(std::size_t tensor, std::span<const float> gradient) final;
  void mean(std::size_t tensor, std::span<float> mean) final;
  void undo(std::size_t tensor) final;
  void say_skipped(std::uint64_t steps) final;
  void finish(std::span<const std::span<float>> parameters) final;
  NodeState state() final;
  [[nodiscard]] std::vector<std::vector<float>> residuals() final;
  [[nodiscard]] Counters counters() const final { return counters_; }
  [[nodiscard]] std::vector<double> encoded_bytes() const final { return encoded_bytes_; }

 protected:
  // Sorts in a message that has arrived, checking that it is one that its sender may send.
  virtual void keep(Received received) = 0;
  // Takes this worker's gradient of the current step.
  virtual void take_gradient(std::size_t part, std::span<const float> gradient) {
    submit(part, step_, gradient);
  }
  // Begins the exchange of values of this step, which submit() was given.
  virtual void contribute(std::size_t part, std::uint64_t step, std::span<const float> values) = 0;
  // The next change of this part's parameters, of the step after applied_step(): whether all that
  // it needs has arrived ...
  [[nodiscard]] virtual bool change_is_here(std::size_t part) const = 0;
  // ... whether this rank still owes something of it, as far as can be known here ...
  [[nodiscard]] virtual bool needs(std::size_t /*part*/, int /*rank*/) const { return false; }
  // ... and then, applied ...
  virtual void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) = 0;
  // (whether that of several parts may be so at once) ...
  [[nodiscard]] virtual bool applies_at_once() const { return false; }
  // ... or the mean gradient itself, which overwrites `mean`, where the exchange has it: of several
  // parts at once.
  virtual void take_mean(std::size_t part, std::span<float> mean, Counters& counted);
  // What encodes the values that take_gradient() is given, as they are and in that call; null where
  // that is not so.
  [[nodiscard]] virtual Encoder* encoder_of(std::size_t /*part*/) { return nullptr; }

  // What the encoders keep.
  [[nodiscard]] virtual std::vector<ResidualRun> residual_runs() = 0;
  // What is followed here.
  [[nodiscard]] virtual std::vector<ResidualRun> followed_runs() { return {}; }
  // Takes all steps up to this one as over.
  virtual void skip_to(std::uint64_t /*step*/) {}

  // A part's initial values, once or more, before its first push and its first change.
  virtual void see_initial(std::size_t /*part*/, std::span<const float> /*parameters*/) {}
  // How many changes finish() brings after that of the last step.
  [[nodiscard]] virtual std::uint64_t closing_changes(std::size_t /*part*/) const { return 0; }
  // Waits until next_step() can be said.
  virtual void wait_for_step() {}
  // The step to compute next; workers that others may overtake skip some.
  [[nodiscard]] virtual std::uint64_t next_step() const { return step_ + 1; }
  // Whether a part's parameters lack a change of the steps up to this one ...
  [[nodiscard]] virtual bool lacks_change(std::size_t part, std::uint64_t step) const {
    return applied_step(part) < step;
  }
  // ... and the step that the next change brings them to.
  [[nodiscard]] virtual std::uint64_t change_step(std::size_t part) const {
    return applied_step(part) + 1;
  }
  // Of the job, once this worker is done: a step that was begun and not computed has no change to
  // wait for.
  [[nodiscard]] virtual std::uint64_t last_step() const {
    return exchanged_step() == step_ ? step_ : step_ - 1;
  }
  // Before the last changes are waited for.
  virtual void say_done() {}
  // Whether the replicas of all workers are equal where the changes of the steps before `step` have
  // been applied. After finish() they always are.
  [[nodiscard]] virtual bool replicas_agree_before(std::uint64_t /*step*/) const { return true; }

  // Whether this worker may leave without finish(): it has taken the means of the step begun.
  [[nodiscard]] bool leaves_with_means() const;
  // Tells so many nodes, from this one on, that this worker is done, and after which step: what a
  // server of the ring adds up for that may still be on its way to it.
  void tell_done(int first, int nodes);

  // Has values of this step contributed: at once, or, with Job::raw_from_all, a copy of them, when
  // workers have agreed on what travels raw.
  void submit(std::size_t part, std::uint64_t step, std::span<const float> values);
  // Turns the mean gradient into a change of the parameters, where workers own the model ...
  void apply_mean(const Update& update, std::size_t part, std::span<const float> mean,
                  std::span<float> parameters);
  // ... that which take_mean() gives.
  void apply_mean(const Update& update, std::size_t part, std::span<float> parameters,
                  Counters& counted) {
    mean_.resize(parameters.size());
    take_mean(part, mean_, counted);
    apply_mean(update, part, mean_, parameters);
  }
  // Encodes values that belong to `part` and to `step`, under the scalers that workers agreed on
  // where there are some, and counts that.
  Encoded encode(Encoder& encoder, std::size_t part, std::uint64_t step,
                 std::span<const float> values, Bytes& out, std::span<const float> agreed = {});
  // Encodes them into the message in which the part's bucket travels, and counts that; the frame is
  // valid until the message is taken. Kind and step are the same for all parts of a bucket.
  Frame add_to_push(MessageKind kind, Encoder& encoder, std::size_t part, std::uint64_t step,
                    std::span<const float> values, std::span<const float> agreed = {});
  // That message once it is complete, and null before. `own`: it stays on this node.
  SharedBytes take_push(std::size_t part, std::uint64_t step, bool own = false);
  void send(int to, const SharedBytes& bytes);
  [[nodiscard]] std::size_t waiting_for(int rank) const { return transport_.peer(rank).waiting; }
  // Counts what an encoder made of a part, or a share of it.
  void count_encoded(std::size_t part, double bytes) {
    encoded_bytes_[parts()[part].tensor] += bytes;
  }
  // Whether a part is sent uncompressed in this step because it is not finite on some worker.
  [[nodiscard]] bool travels_raw(std::size_t part, std::uint64_t step) const {
    return held_ && held_->travels_raw(part, step);
  }
  // Others hold so many bytes that end with this part until they have answered by a change of it.
  void expect_answer(std::size_t part, std::uint64_t step, std::size_t bytes);
  // Waits until little enough of what this worker pushed is unanswered, so that others need not
  // hold more of it while they wait for somebody slower.
  void wait_for_room();
  // Takes messages until something is there; `what` ends the sentence where none comes, or where a
  // rank has left from which something is needed.
  void wait_until(const std::function<bool()>& is_here, const std::function<std::string()>& what,
                  const std::function<bool(int rank)>& needs = {});

  [[nodiscard]] const Job& job() const { return placement_->job; }
  [[nodiscard]] const Placement& placement() const { return *placement_; }
  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] ThreadPool* pool() const { return pool_; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  // The one that this worker has resumed after, or 0.
  [[nodiscard]] std::uint64_t step_before_first() const { return step_before_first_; }
  [[nodiscard]] std::uint64_t applied_step(std::size_t part) const {
    return progress_[part].applied_step;
  }
  [[nodiscard]] std::uint64_t pushed_step(std::size_t part) const {
    return progress_[part].pushed_step;
  }
  // The step whose gradients are on their way, or were the last to be.
  [[nodiscard]] std::uint64_t exchanged_step() const { return under_way_.step; }
  [[nodiscard]] const std::vector<Part>& parts() const { return placement_->parts; }
  // "tensor 'NAME'", or a part of it, for sentences.
  [[nodiscard]] std::string name(std::size_t part) const { return placement_->name(part); }

  Counters counters_;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Progress {
    std::uint64_t pushed_step = 0;   // of the last push
    std::uint64_t applied_step = 0;  // of the last change
  };
  // A push that is being put together.
  struct OpenPush {
    MessageWriter writer{MessageHeader{}};
    std::size_t frames = 0;
  };
  // The exchange of the step that was pushed last, or of its last turn.
  struct UnderWay {
    std::uint64_t step = 0;
    std::size_t fragment = 0;
    TimePoint began;
    TimePoint last_arrival;
    std::size_t applied = 0;  // parts
  };

  // A bucket that was pushed.
  struct Pushed {
    std::size_t part;  // its last
    std::uint64_t step;
    std::size_t bytes;
  };

  template <typename Task>
  decltype(auto) guarded(Task&& task) {
    return ending_the_job_on_failure(transport_, fmt::format("{}, {} {}", me_, step_noun(), step_),
                                     std::forward<Task>(task));
  }
  // What is counted here, for sentences: of several of the application's steps, an exchange.
  [[nodiscard]] const char* step_noun() const {
    return job().steps_a_round() > 1 ? "exchange" : "step";
  }
  // The fragment of this tensor whose turn in this step comes next; none where all had theirs.
  [[nodiscard]] std::optional<std::size_t> turn_of(std::size_t tensor) const;
  // Says why it is none's.
  [[noreturn]] void fail_no_turn(std::size_t tensor) const;
  void note_began(std::size_t fragment);
  // Encodes these parts of a tensor's gradient, which are pushed next, at once.
  void encode_ahead(std::span<const std::size_t> some, std::span<const float> gradient);
  Encoded encode_values(Encoder& encoder, std::size_t part, std::uint64_t step,
                        std::span<const float> values, std::span<const float> agreed, Bytes& out);
  // Those of a tensor.
  [[nodiscard]] std::span<float> values_of(std::size_t part, std::span<float> values) const {
    return values.subspan(parts()[part].begin, parts()[part].elems);
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t part,
                                                 std::span<const float> values) const {
    return values.subspan(parts()[part].begin, parts()[part].elems);
  }
  // For the next change of a part, which must be one that lacks some.
  void wait_for_change(std::size_t part, const char* what);
  [[nodiscard]] std::uint64_t next_change(std::size_t tensor) const;
  void check_unfinished() const;
  // Whether all of the step begun has been pushed.
  void check_pushed() const;
  void bring_to(std::size_t tensor, std::uint64_t step, std::span<float> parameters);
  void note_applied(std::size_t part, std::uint64_t step);
  [[nodiscard]] std::size_t window_bytes() const;
  // Whether the change that a push led to has arrived.
  [[nodiscard]] bool is_answered(const Pushed& bucket) const;
  // Between computations, so that what others wait for goes on.
  void keep_what_has_arrived();
  void sort_in(Received received);
  void take_finiteness(int from, const Message& message);
  void take_checksum(int from, std::uint64_t step, std::uint64_t checksum);
  void tell_checksum(std::uint64_t step, std::uint64_t checksum);
  void release(const Message& verdict);
  void wait_for_verdicts();

  [[nodiscard]] bool is_checked_before(std::uint64_t step) const {
    if (job().checksum_steps == 0 || !replicas_agree_before(step)) return false;
    return (step - 1) % job().checksum_steps == 0 || step == step_before_first_ + 1;
  }
  void sum_up(std::size_t tensor, std::uint64_t step, std::span<const float> parameters);

  std::shared_ptr<const Placement> placement_;
  Transport& transport_;
  ThreadPool* pool_;
  std::string me_;
  std::vector<Progress> progress_;     // by part
  std::vector<OpenPush> open_pushes_;  // by bucket
  std::deque<Pushed> unanswered_;
  std::size_t unanswered_bytes_ = 0;
  UnderWay under_way_;
  std::vector<const std::function<bool()>*> awaited_;  // by calls that wait
  ReplicaCheck replicas_;
  // Where workers agree on what travels raw.
  std::optional<HeldPushes> held_;
  std::optional<FinitenessCount> count_;  // worker 0's
  EncodedAhead ahead_;                    // of the tensor that is being pushed
  // Shared by all parts: one is worked on at a time.
  Floats mean_;
  Floats delta_;
  std::vector<double> encoded_bytes_;
  KeptResiduals before_step_;  // of an undoable job
  std::uint64_t step_before_first_ = 0;
  std::uint64_t step_ = 0;
  bool finished_ = false;
};

}  // namespace tersewire
