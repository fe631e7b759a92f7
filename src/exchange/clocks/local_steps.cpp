#include "local_steps.h"

#include <algorithm>

#include "float_mode.h"
#include "rounds.h"

namespace tersewire {
namespace {

struct Accumulated {
  std::vector<float> sum;   // of gradients
  std::uint64_t steps = 0;  // that it is the sum of
};

class LocalSteps final : public Rounds {
 public:
  LocalSteps(std::unique_ptr<Communicator> exchange, std::shared_ptr<const Placement> placed,
             Transport& network)
      : Rounds(std::move(exchange), std::move(placed), network),
        accumulated_(placement().job.tensors.size()) {
    for (std::size_t i = 0; i < accumulated_.size(); ++i) {
      accumulated_[i].sum.resize(placement().job.tensors[i].elems());
    }
  }

  void resume(const NodeState& state);

  // Within a round there is nothing new, but whoever resumes there has not seen the parameters yet.
  void pull(std::size_t tensor, std::span<float> parameters) override {
    exchange().pull(tensor, parameters);
  }
  void push(std::size_t tensor, std::span<const float> gradient) override;
  void finish(std::span<const std::span<float>> parameters) override;
  NodeState state() override;

 private:
  [[nodiscard]] bool is_pushed(std::size_t tensor) const override {
    return accumulated_[tensor].steps == steps_before() + 1;
  }
  [[nodiscard]] std::span<float> sum_of(const Part& part) {
    return std::span(accumulated_[part.tensor].sum).subspan(part.begin, part.elems);
  }
  void add(std::size_t tensor, std::span<const float> gradient);
  void exchange_mean(std::size_t tensor);

  std::vector<Accumulated> accumulated_;  // by tensor
};

void LocalSteps::resume(const NodeState& state) {
  go_on_after(state);
  const std::uint64_t steps = state.step % steps_a_round();
  if (steps == 0) return;
  for (Accumulated& tensor : accumulated_) tensor.steps = steps;
  for (const Part& part : placement().parts) {
    std::ranges::copy(state.accumulated[part.number], sum_of(part).begin());
  }
}

NodeState LocalSteps::state() {
  for (std::size_t i = 0; i < accumulated_.size(); ++i) {
    if (step() > 0 && accumulated_[i].steps == steps_before()) continue;
    fail(ErrorCode::kFailedPrecondition,
         "tensor number {} has been pushed in step {}, or that has not begun; take the state when "
         "every tensor has been pulled in a step, and none has been pushed",
         i, step());
  }
  NodeState state = exchange().state();
  state.step = step() - 1;
  if (steps_before() == 0) return state;
  for (const Part& part : placement().parts) {
    const std::span<const float> sum = sum_of(part);
    state.accumulated[part.number].assign(sum.begin(), sum.end());
  }
  return state;
}

void LocalSteps::push(std::size_t tensor, std::span<const float> gradient) {
  guarded([&] { add(tensor, gradient); });
  if (step() == last_of_round()) exchange_mean(tensor);
}

void LocalSteps::add(std::size_t tensor, std::span<const float> gradient) {
  check_values(placement().job, tensor, gradient.size());
  Accumulated& accumulated = accumulated_[tensor];
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
  exchange().push(tensor, accumulated.sum);
  accumulated.steps = 0;
}

// What the steps since the last exchange came to is exchanged too.
void LocalSteps::finish(std::span<const std::span<float>> parameters) {
  guarded([&] {
    for (std::size_t i = 0; i < accumulated_.size(); ++i) {
      if (accumulated_[i].steps == accumulated_[0].steps) continue;
      fail(ErrorCode::kFailedPrecondition,
           "tensors '{}' and '{}' have not been pushed in the same steps; push every tensor in "
           "every step",
           placement().job.tensors[0].name, placement().job.tensors[i].name);
    }
  });
  for (std::size_t tensor = accumulated_.size(); tensor-- > 0;) {
    if (accumulated_[tensor].steps > 0) exchange_mean(tensor);
  }
  exchange().finish(parameters);
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
