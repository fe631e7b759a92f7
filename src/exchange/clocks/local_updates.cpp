#include "local_updates.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "rounds.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct SharedTensor {
  std::vector<float> values;           // as far as they have been pulled; none before that
  std::vector<float> begun_with;       // own ones, when the last exchange began; with a delay
  std::uint64_t pulled_step = kNever;  // by the application
  std::uint64_t pushed_step = 0;
};

class LocalUpdates final : public Rounds {
 public:
  LocalUpdates(std::unique_ptr<Communicator> exchange, std::shared_ptr<const Placement> placed,
               Transport& network)
      : Rounds(std::move(exchange), std::move(placed), network),
        fragments_(placement().fragment_parts.size()),
        delay_(static_cast<std::uint64_t>(placement().job.delay)),
        shared_(placement().job.tensors.size()) {}

  void resume(const NodeState& state);

  void pull(std::size_t tensor, std::span<float> parameters) override;
  void push(std::size_t tensor, std::span<const float> parameters) override;
  void finish(std::span<const std::span<float>> parameters) override;
  NodeState state() override;

 private:
  [[nodiscard]] bool is_pushed(std::size_t tensor) const override {
    return shared_[tensor].pushed_step == step();
  }
  // Whether what a worker learned while an exchange was under way is added to its result.
  [[nodiscard]] bool adds_progress() const { return delay_ > 0; }
  // Steps from one fragment's turn to the next one's, where there are several.
  [[nodiscard]] std::uint64_t steps_a_turn() const { return steps_a_round() / fragments_; }
  // The fragment whose turn ends with this step of this round or the one before, where there is
  // one.
  [[nodiscard]] std::optional<std::size_t> turn_after(std::uint64_t step) const;
  // The fragment whose result is taken before this step.
  [[nodiscard]] std::optional<std::size_t> taken_before(std::uint64_t step) const;
  [[nodiscard]] bool has(std::size_t tensor, std::optional<std::size_t> fragment) const;
  template <typename Task>
  void for_parts(std::size_t tensor, std::size_t fragment, const Task& task) const;

  void take_push(std::size_t tensor, std::span<const float> parameters);
  void exchange_change(std::size_t tensor, std::size_t fragment, std::span<const float> parameters);
  void exchange_rest(std::size_t tensor, std::span<const float> parameters);
  void take_shared(std::size_t tensor, std::size_t fragment, std::span<float> parameters) const;
  void take_what_is_pending(std::size_t tensor, std::span<float> parameters);
  // The step of the last turn, of each fragment, whose result all workers have.
  [[nodiscard]] std::uint64_t shared_up_to() const;
  // What ends the job for want of others says what that costs.
  template <typename Task>
  void with_others(const Task& task) const;

  std::size_t fragments_;
  std::uint64_t delay_;
  std::uint64_t resumed_after_ = 0;
  std::vector<SharedTensor> shared_;
  std::vector<float> change_;  // shared by all tensors: one is worked on at a time
};

// A round is over in it.
void LocalUpdates::resume(const NodeState& state) {
  go_on_after(state);
  resumed_after_ = state.step;
  for (SharedTensor& tensor : shared_) tensor.pushed_step = state.step;
  if (!placement().job.keeps_shared_copy()) return;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    shared_[i].values.resize(placement().job.tensors[i].elems());
  }
  for (const Part& part : placement().parts) {
    std::ranges::copy(state.shared[part.number], shared_[part.tensor].values.begin() +
                                                     static_cast<std::ptrdiff_t>(part.begin));
  }
}

std::optional<std::size_t> LocalUpdates::turn_after(std::uint64_t step) const {
  if (step == 0) return {};
  if (fragments_ == 1) {
    const bool ends = step == last_before_round() || step == last_of_round();
    return ends ? std::optional<std::size_t>(0) : std::nullopt;
  }
  if (step % steps_a_turn() != 0) return {};
  return (step / steps_a_turn() - 1) % fragments_;
}

// What is taken before the step that a state was saved in is in that.
std::optional<std::size_t> LocalUpdates::taken_before(std::uint64_t step) const {
  if (step <= delay_ || step == resumed_after_ + 1) return {};
  return turn_after(step - 1 - delay_);
}

template <typename Task>
void LocalUpdates::for_parts(std::size_t tensor, std::size_t fragment, const Task& task) const {
  for (std::size_t i = placement().first_part[tensor]; i < placement().first_part[tensor + 1];
       ++i) {
    if (placement().fragment_of[i] == fragment) task(placement().parts[i]);
  }
}

bool LocalUpdates::has(std::size_t tensor, std::optional<std::size_t> fragment) const {
  bool found = false;
  if (fragment) for_parts(tensor, *fragment, [&](const Part&) { found = true; });
  return found;
}

std::uint64_t LocalUpdates::shared_up_to() const {
  if (fragments_ == 1) {
    return steps_before() > delay_ ? last_before_round() : last_before_round(2);
  }
  const std::uint64_t ended = step() > 1 + delay_ ? (step() - 2 - delay_) / steps_a_turn() : 0;
  return ended >= fragments_ ? (ended - fragments_ + 1) * steps_a_turn() : 0;
}

template <typename Task>
void LocalUpdates::with_others(const Task& task) const {
  try {
    task();
  } catch (const Error& error) {
    const ErrorCode code = error.code();
    if (code != ErrorCode::kAborted && code != ErrorCode::kUnavailable &&
        code != ErrorCode::kDeadlineExceeded) {
      throw;
    }
    fail(code,
         "{}; the model that workers share holds what they learned up to step {}, and no more than "
         "a round after it is lost",
         error.what(), shared_up_to());
  }
}

void LocalUpdates::pull(std::size_t tensor, std::span<float> parameters) {
  guarded([&] { check_values(placement().job, tensor, parameters.size()); });
  SharedTensor& shared = shared_[tensor];
  if (shared.pulled_step == step()) return;
  const bool first = shared.pulled_step == kNever;
  if (first && shared.values.empty()) shared.values.assign(parameters.begin(), parameters.end());
  // Where a job goes on, an exchange of what these were may be under way.
  if (first && adds_progress()) shared.begun_with.assign(parameters.begin(), parameters.end());
  const auto fragment = taken_before(step());
  if (first || has(tensor, fragment)) {
    with_others([&] { exchange().pull(tensor, shared.values); });
  }
  if (fragment) take_shared(tensor, *fragment, parameters);
  shared.pulled_step = step();
}

// What this worker had learned by then has been pushed. So it goes where the others are, and as far
// beyond as it has come since.
void LocalUpdates::take_shared(std::size_t tensor, std::size_t fragment,
                               std::span<float> parameters) const {
  const DefaultFloatMode mode;
  for_parts(tensor, fragment, [&](const Part& part) {
    const auto own = parameters.subspan(part.begin, part.elems);
    const auto shared = std::span(shared_[tensor].values).subspan(part.begin, part.elems);
    if (adds_progress()) {
      const auto then = std::span(shared_[tensor].begun_with).subspan(part.begin, part.elems);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = shared[i] + (own[i] - then[i]);
    } else {
      std::ranges::copy(shared, own.begin());
    }
  });
}

void LocalUpdates::push(std::size_t tensor, std::span<const float> parameters) {
  guarded([&] { take_push(tensor, parameters); });
  if (const auto fragment = turn_after(step())) exchange_change(tensor, *fragment, parameters);
}

void LocalUpdates::take_push(std::size_t tensor, std::span<const float> parameters) {
  check_values(placement().job, tensor, parameters.size());
  SharedTensor& shared = shared_[tensor];
  if (shared.pulled_step != step()) {
    fail(ErrorCode::kFailedPrecondition, "pull tensor '{}' in step {} before it is pushed",
         placement().job.tensors[tensor].name, step());
  }
  if (shared.pushed_step == step()) {
    fail(ErrorCode::kFailedPrecondition,
         "tensor '{}' has been pushed in step {} already; begin the next step first",
         placement().job.tensors[tensor].name, step());
  }
  shared.pushed_step = step();
}

void LocalUpdates::exchange_change(std::size_t tensor, std::size_t fragment,
                                   std::span<const float> parameters) {
  if (!has(tensor, fragment)) return;
  const DefaultFloatMode mode;
  change_.resize(parameters.size());
  for_parts(tensor, fragment, [&](const Part& part) {
    const std::vector<float>& shared = shared_[tensor].values;
    for (std::size_t i = part.begin; i < part.begin + part.elems; ++i) {
      change_[i] = shared[i] - parameters[i];
    }
    if (!adds_progress()) return;
    const auto own = parameters.subspan(part.begin, part.elems);
    std::ranges::copy(own,
                      shared_[tensor].begun_with.begin() + static_cast<std::ptrdiff_t>(part.begin));
  });
  with_others([&] { exchange().push(tensor, change_); });
}

NodeState LocalUpdates::state() {
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    const SharedTensor& shared = shared_[i];
    if (step() > 0 && steps_before() == 0 && shared.pulled_step == step() &&
        shared.pushed_step < step()) {
      continue;
    }
    fail(ErrorCode::kFailedPrecondition,
         "tensor '{}' is not between its pull and its push of the first step of a round of {} "
         "local updates; take the state when every tensor has been pulled in such a step, and none "
         "has been pushed",
         placement().job.tensors[i].name, steps_a_round());
  }
  // With a delay the last fragment's result is still to be waited for, and to be taken later.
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    with_others([&] { exchange().pull(i, shared_[i].values); });
  }
  NodeState state = exchange().state();
  if (!placement().job.keeps_shared_copy()) return state;
  for (const Part& part : placement().parts) {
    const auto values = std::span(shared_[part.tensor].values).subspan(part.begin, part.elems);
    state.shared[part.number].assign(values.begin(), values.end());
  }
  return state;
}

// What was learned since the last exchange is exchanged too, of what has not had its turn in this
// round.
void LocalUpdates::finish(std::span<const std::span<float>> parameters) {
  const std::size_t tensors = std::min(shared_.size(), parameters.size());
  for (std::size_t i = tensors; i-- > 0;) {
    guarded([&] { check_values(placement().job, i, parameters[i].size()); });
    const std::uint64_t pushed = shared_[i].pushed_step;
    if (pushed > last_before_round() && pushed != last_of_round()) {
      take_what_is_pending(i, parameters[i]);
      const std::uint64_t of_round = pushed - last_before_round();
      for (std::size_t turn = of_round / steps_a_turn(); turn < fragments_; ++turn) {
        exchange_change(i, turn, parameters[i]);
      }
    }
    std::ranges::copy(shared_[i].values, parameters[i].begin());
  }
  with_others([&] { exchange().finish(parameters); });
}

// The result of the last turn, before its time has come.
void LocalUpdates::take_what_is_pending(std::size_t tensor, std::span<float> parameters) {
  if (delay_ == 0) return;
  const SharedTensor& shared = shared_[tensor];
  const std::uint64_t turn = shared.pushed_step / steps_a_turn() * steps_a_turn();
  const auto fragment = turn_after(turn);
  if (!has(tensor, fragment) || turn + delay_ < shared.pulled_step) return;
  with_others([&] { exchange().pull(tensor, shared_[tensor].values); });
  take_shared(tensor, *fragment, parameters);
}

}  // namespace

std::unique_ptr<Communicator> with_local_updates(std::unique_ptr<Communicator> exchange,
                                                 std::shared_ptr<const Placement> placement,
                                                 Transport& network, const NodeState* resume) {
  auto communicator =
      std::make_unique<LocalUpdates>(std::move(exchange), std::move(placement), network);
  if (resume != nullptr) communicator->resume(*resume);
  return communicator;
}

}  // namespace tersewire
