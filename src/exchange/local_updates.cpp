#include "local_updates.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "rounds.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct SharedTensor {
  std::vector<float> values;            // of the last pull; none before it
  std::uint64_t pulled_round = kNever;  // as its last step
  std::uint64_t pushed_step = 0;
};

class LocalUpdates final : public Rounds {
 public:
  LocalUpdates(std::unique_ptr<Communicator> exchange, std::shared_ptr<const Placement> placed,
               Transport& network)
      : Rounds(std::move(exchange), std::move(placed), network),
        shared_(placement().job.tensors.size()) {}

  // A round is over in it.
  void resume(const NodeState& state) { go_on_after(state.step); }

  void pull(std::size_t tensor, std::span<float> parameters) override;
  void push(std::size_t tensor, std::span<const float> parameters) override;
  void finish(std::span<const std::span<float>> parameters) override;
  NodeState state() override;

 private:
  void take_push(std::size_t tensor, std::span<const float> parameters);
  void exchange_change(std::size_t tensor, std::span<const float> parameters);
  void go_back(std::size_t tensor, std::span<float> parameters) const {
    std::ranges::copy(shared_[tensor].values, parameters.begin());
  }

  std::vector<SharedTensor> shared_;
  std::vector<float> change_;  // shared by all tensors: one is worked on at a time
};

// What this worker has learned since the last pull has been pushed. So it goes back there, where
// the others are, and from there takes what all have learned.
void LocalUpdates::pull(std::size_t tensor, std::span<float> parameters) {
  guarded([&] { check_values(placement().job, tensor, parameters.size()); });
  SharedTensor& shared = shared_[tensor];
  if (shared.pulled_round == last_of_round()) return;
  go_back(tensor, parameters);
  exchange().pull(tensor, parameters);
  shared.values.assign(parameters.begin(), parameters.end());
  shared.pulled_round = last_of_round();
}

void LocalUpdates::push(std::size_t tensor, std::span<const float> parameters) {
  guarded([&] { take_push(tensor, parameters); });
  if (step() == last_of_round()) exchange_change(tensor, parameters);
}

void LocalUpdates::take_push(std::size_t tensor, std::span<const float> parameters) {
  check_values(placement().job, tensor, parameters.size());
  SharedTensor& shared = shared_[tensor];
  if (shared.pulled_round != last_of_round() || shared.pushed_step == step()) {
    fail(ErrorCode::kFailedPrecondition,
         "tensor '{}' must be pulled and then pushed once in every step",
         placement().job.tensors[tensor].name);
  }
  shared.pushed_step = step();
}

void LocalUpdates::exchange_change(std::size_t tensor, std::span<const float> parameters) {
  const DefaultFloatMode mode;
  change_.resize(parameters.size());
  std::ranges::transform(shared_[tensor].values, parameters, change_.begin(), std::minus<>());
  exchange().push(tensor, change_);
}

NodeState LocalUpdates::state() {
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    const SharedTensor& shared = shared_[i];
    if (step() > 0 && steps_before() == 0 && shared.pulled_round == last_of_round() &&
        shared.pushed_step < step()) {
      continue;
    }
    fail(ErrorCode::kFailedPrecondition,
         "tensor '{}' is not between its pull and its push of the first step of a round of {} "
         "local updates; take the state when every tensor has been pulled in such a step, and none "
         "has been pushed",
         placement().job.tensors[i].name, steps_a_round());
  }
  return exchange().state();
}

// What was learned since the last exchange is exchanged too.
void LocalUpdates::finish(std::span<const std::span<float>> parameters) {
  const std::size_t tensors = std::min(shared_.size(), parameters.size());
  for (std::size_t i = tensors; i-- > 0;) {
    guarded([&] { check_values(placement().job, i, parameters[i].size()); });
    if (shared_[i].pushed_step % steps_a_round() != 0) exchange_change(i, parameters[i]);
    go_back(i, parameters[i]);
  }
  exchange().finish(parameters);
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
