#include "local_steps.h"

#include <algorithm>

#include "float_mode.h"
#include "node.h"

namespace tersewire {
namespace {

struct Accumulated {
  std::vector<float> sum;   // of gradients
  std::uint64_t steps = 0;  // that it is the sum of
};

class LocalSteps final : public Communicator {
 public:
  LocalSteps(std::unique_ptr<Communicator> exchange, std::shared_ptr<const Placement> placement,
             Transport& network)
      : exchange_(std::move(exchange)),
        placement_(std::move(placement)),
        network_(network),
        local_steps_(static_cast<std::uint64_t>(placement_->job.local_steps)),
        accumulated_(placement_->job.tensors.size()) {
    for (std::size_t i = 0; i < accumulated_.size(); ++i) {
      accumulated_[i].sum.resize(placement_->job.tensors[i].elems());
    }
  }

  void resume(const NodeState& state);

  std::uint64_t begin_step() override;
  void pull(std::size_t tensor, std::span<float> parameters) override;
  void push(std::size_t tensor, std::span<const float> gradient) override;
  void mean(std::size_t tensor, std::span<float> mean) override { exchange_->mean(tensor, mean); }
  void give_back(std::size_t tensor, std::span<const float> mean) override {
    exchange_->give_back(tensor, mean);
  }
  void say_skipped(std::uint64_t steps) override { exchange_->say_skipped(steps); }
  void finish(std::span<const std::span<float>> parameters) override;
  NodeState state() override;
  [[nodiscard]] std::vector<std::vector<float>> residuals() override {
    return exchange_->residuals();
  }
  [[nodiscard]] const Counters& counters() const noexcept override { return exchange_->counters(); }
  [[nodiscard]] std::vector<double> encoded_bytes() const override {
    return exchange_->encoded_bytes();
  }

 private:
  // Those of this round that were begun before the current one.
  [[nodiscard]] std::uint64_t steps_before() const {
    return step_ + local_steps_ - last_of_round_ - 1;
  }
  [[nodiscard]] std::span<float> sum_of(const Part& part) {
    return std::span(accumulated_[part.tensor].sum).subspan(part.begin, part.elems);
  }
  void add(std::size_t tensor, std::span<const float> gradient);
  void exchange_mean(std::size_t tensor);

  std::unique_ptr<Communicator> exchange_;
  std::shared_ptr<const Placement> placement_;
  Transport& network_;
  std::uint64_t local_steps_;
  std::vector<Accumulated> accumulated_;  // by tensor
  std::uint64_t step_ = 0;
  std::uint64_t last_of_round_ = 0;  // the step whose gradients complete what is exchanged
};

void LocalSteps::resume(const NodeState& state) {
  step_ = last_of_round_ = state.step;
  const std::uint64_t steps = step_ % local_steps_;
  if (steps == 0) return;
  last_of_round_ = exchange_->begin_step() * local_steps_;
  for (Accumulated& tensor : accumulated_) tensor.steps = steps;
  for (const Part& part : placement_->parts) {
    std::ranges::copy(state.accumulated[part.number], sum_of(part).begin());
  }
}

NodeState LocalSteps::state() {
  for (std::size_t i = 0; i < accumulated_.size(); ++i) {
    if (step_ > 0 && accumulated_[i].steps == steps_before()) continue;
    fail(ErrorCode::kFailedPrecondition,
         "tensor number {} has been pushed in step {}, or that has not begun; take the state when "
         "every tensor has been pulled in a step, and none has been pushed",
         i, step_);
  }
  NodeState state = exchange_->state();
  state.step = step_ - 1;
  if (steps_before() == 0) return state;
  for (const Part& part : placement_->parts) {
    const std::span<const float> sum = sum_of(part);
    state.accumulated[part.number].assign(sum.begin(), sum.end());
  }
  return state;
}

std::uint64_t LocalSteps::begin_step() {
  if (step_ < last_of_round_) return ++step_;
  last_of_round_ = exchange_->begin_step() * local_steps_;
  return step_ = last_of_round_ - local_steps_ + 1;
}

// Within a round there is nothing new, but whoever resumes there has not seen the parameters yet.
void LocalSteps::pull(std::size_t tensor, std::span<float> parameters) {
  exchange_->pull(tensor, parameters);
}

void LocalSteps::push(std::size_t tensor, std::span<const float> gradient) {
  ending_the_job_on_failure(network_, fmt::format("worker {}, step {}", network_.rank(), step_),
                            [&] { add(tensor, gradient); });
  if (step_ == last_of_round_) exchange_mean(tensor);
}

void LocalSteps::add(std::size_t tensor, std::span<const float> gradient) {
  if (tensor >= accumulated_.size()) {
    fail(ErrorCode::kInvalidArgument, "there is no tensor number {}; the job has {}", tensor,
         accumulated_.size());
  }
  Accumulated& accumulated = accumulated_[tensor];
  if (gradient.size() != accumulated.sum.size()) {
    fail(ErrorCode::kInvalidArgument, "tensor number {} has {} values, and {} were pushed", tensor,
         accumulated.sum.size(), gradient.size());
  }
  if (accumulated.steps != steps_before()) {
    fail(ErrorCode::kFailedPrecondition, "tensor number {} must be pushed once in every step",
         tensor);
  }
  if (accumulated.steps == 0) std::ranges::fill(accumulated.sum, 0.0F);
  std::ranges::transform(accumulated.sum, gradient, accumulated.sum.begin(), std::plus<>());
  ++accumulated.steps;
}

void LocalSteps::exchange_mean(std::size_t tensor) {
  const DefaultFloatMode mode;
  Accumulated& accumulated = accumulated_[tensor];
  const float weight = 1.0F / static_cast<float>(accumulated.steps);
  for (float& value : accumulated.sum) value *= weight;
  exchange_->push(tensor, accumulated.sum);
  accumulated.steps = 0;
}

// What the steps since the last exchange came to is exchanged too.
void LocalSteps::finish(std::span<const std::span<float>> parameters) {
  for (std::size_t tensor = accumulated_.size(); tensor-- > 0;) {
    if (accumulated_[tensor].steps > 0) exchange_mean(tensor);
  }
  exchange_->finish(parameters);
}

}  // namespace

std::unique_ptr<Communicator> with_local_steps(std::unique_ptr<Communicator> exchange,
                                               std::shared_ptr<const Placement> placement,
                                               Transport& network, const NodeState* resume) {
  auto communicator =
      std::make_unique<LocalSteps>(std::move(exchange), std::move(placement), network);
  if (resume != nullptr) communicator->resume(*resume);
  return communicator;
}

}  // namespace tersewire
