// What the workers of all exchanges have in common: the order of steps, of pulls and of pushes, and
// the end of the job for everyone where something fails.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "node.h"
#include "placement.h"
#include "tersewire/communicator.h"

namespace tersewire {

// A Communicator, but for what travels where.
class Worker : public Communicator {
 public:
  Worker(std::shared_ptr<const Placement> placement, Transport& transport, ThreadPool* pool);
  ~Worker() override;

  std::uint64_t begin_step() final;
  void pull(std::size_t tensor, std::span<float> parameters) final;
  void push(std::size_t tensor, std::span<const float> gradient) final;
  void finish(std::span<const std::span<float>> parameters) final;
  [[nodiscard]] const Counters& counters() const noexcept final { return counters_; }

 protected:
  // Sorts in a message that has arrived, checking that it is one that its sender may send.
  virtual void keep(Received received) = 0;
  // Begins the exchange of this worker's gradient of the current step.
  virtual void contribute(std::size_t tensor, std::span<const float> gradient) = 0;
  // The next change of this tensor's parameters, of the step after applied_step(): whether all that
  // it needs has arrived ...
  [[nodiscard]] virtual bool change_is_here(std::size_t tensor) const = 0;
  // ... and then, applied.
  virtual void apply_change(std::size_t tensor, std::span<float> parameters) = 0;

  // The step to compute next; workers that others may overtake skip some.
  [[nodiscard]] virtual std::uint64_t next_step() const { return step_ + 1; }
  // Before the last changes are waited for.
  virtual void say_done() {}

  // Turns the mean gradient into a change of the parameters, where workers own the model.
  void apply_mean(const Update& update, std::size_t tensor, std::span<const float> mean,
                  std::span<float> parameters);
  // Encodes values that belong to `tensor` and to `step`, and counts that.
  Encoded encode(Encoder& encoder, std::size_t tensor, std::uint64_t step,
                 std::span<const float> values, Bytes& out);
  // A message with this one frame.
  [[nodiscard]] SharedBytes message_of(MessageKind kind, std::uint64_t step, std::size_t tensor,
                                       const Encoded& encoded, ByteView payload) const;
  void send(int to, const SharedBytes& bytes);

  [[nodiscard]] const Job& job() const { return placement_->job; }
  [[nodiscard]] const Placement& placement() const { return *placement_; }
  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] ThreadPool* pool() const { return pool_; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] std::uint64_t applied_step(std::size_t tensor) const {
    return progress_[tensor].applied_step;
  }
  [[nodiscard]] std::uint64_t pushed_step(std::size_t tensor) const {
    return progress_[tensor].pushed_step;
  }
  // "tensor 'NAME'", for sentences.
  [[nodiscard]] std::string name(std::size_t tensor) const;

  Counters counters_;

 private:
  struct Progress {
    std::uint64_t pushed_step = 0;   // of the last push
    std::uint64_t applied_step = 0;  // of the last change
  };

  template <typename Task>
  decltype(auto) guarded(Task&& task) {
    return ending_the_job_on_failure(transport_, fmt::format("{}, step {}", me_, step_),
                                     std::forward<Task>(task));
  }
  void bring_to(std::size_t tensor, std::uint64_t step, std::span<float> parameters);
  // Between computations, so that what others wait for goes on.
  void keep_what_has_arrived();

  std::shared_ptr<const Placement> placement_;
  Transport& transport_;
  ThreadPool* pool_;
  std::string me_;
  std::vector<Progress> progress_;  // by tensor
  Floats delta_;
  std::uint64_t step_ = 0;
  bool finished_ = false;
};

}  // namespace tersewire
