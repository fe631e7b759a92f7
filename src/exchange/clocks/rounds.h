// A communicator that exchanges once in K steps through another one, which sees one step in K: what
// local steps and local updates share. Where the job has a ladder, that says what K is, round by
// round, and is asked when the round's first step has begun.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "node.h"
#include "node_state.h"
#include "placement.h"
#include "tersewire/communicator.h"

namespace tersewire {

class Rounds : public Communicator {
 public:
  // `network` is that of the exchange.
  Rounds(std::unique_ptr<Communicator> exchange, std::shared_ptr<const Placement> placement,
         Transport& network)
      : exchange_(std::move(exchange)), placement_(std::move(placement)), network_(network) {}

  std::uint64_t begin_step() final;
  void mean(std::size_t tensor, std::span<float> mean) final { exchange_->mean(tensor, mean); }
  void undo(std::size_t tensor) final { exchange_->undo(tensor); }
  void say_skipped(std::uint64_t steps) final { exchange_->say_skipped(steps); }
  [[nodiscard]] std::vector<std::vector<float>> residuals() final { return exchange_->residuals(); }
  [[nodiscard]] Counters counters() const final { return exchange_->counters(); }
  [[nodiscard]] std::vector<double> encoded_bytes() const final {
    return exchange_->encoded_bytes();
  }

 protected:
  // Whether a tensor has been pushed in the step begun, which is not its round's last: those the
  // exchange sees.
  [[nodiscard]] virtual bool is_pushed(std::size_t tensor) const = 0;

  // Before the first step: goes on after this one.
  void go_on_after(const NodeState& state) {
    step_ = state.step;
    round_ = exchanges_in(placement_->job, state);
    if (step_ != last_of_round()) round_ = exchange_->begin_step();
  }

  // Of this round, those that were begun before the current one.
  [[nodiscard]] std::uint64_t steps_before() const { return step_ - last_before_round() - 1; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  // The step whose end completes what is exchanged.
  [[nodiscard]] std::uint64_t last_of_round() const {
    return last_step_of(placement_->job, round_);
  }
  // The last one of the round before, or of so many rounds before.
  [[nodiscard]] std::uint64_t last_before_round(std::uint64_t rounds = 1) const {
    return round_ < rounds ? 0 : last_step_of(placement_->job, round_ - rounds);
  }
  // The most that a round has.
  [[nodiscard]] std::uint64_t steps_a_round() const { return placement_->job.steps_a_round(); }
  [[nodiscard]] const Placement& placement() const { return *placement_; }
  [[nodiscard]] Communicator& exchange() { return *exchange_; }

  template <typename Task>
  decltype(auto) guarded(Task&& task) {
    return ending_the_job_on_failure(network_,
                                     fmt::format("worker {}, step {}", network_.rank(), step_),
                                     std::forward<Task>(task));
  }

 private:
  void check_all_pushed() const {
    for (std::size_t i = 0; i < placement_->job.tensors.size(); ++i) {
      if (is_pushed(i)) continue;
      fail(ErrorCode::kFailedPrecondition,
           "tensor '{}' has not been pushed in step {}; push every tensor in every step",
           placement_->job.tensors[i].name, step_);
    }
  }

  std::unique_ptr<Communicator> exchange_;
  std::shared_ptr<const Placement> placement_;
  Transport& network_;
  std::uint64_t step_ = 0;
  std::uint64_t round_ = 0;  // the exchange's step
};

inline std::uint64_t Rounds::begin_step() {
  if (step_ < last_of_round()) {
    guarded([&] { check_all_pushed(); });
    return ++step_;
  }
  round_ = exchange_->begin_step();
  return step_ = last_before_round() + 1;
}

}  // namespace tersewire
