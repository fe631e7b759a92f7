#include "trainer/members/held_states.h"

#include <algorithm>
#include <utility>

#include "trainer/members/hand_over.h"

namespace tersewire::trainer {

void HeldStates::keep(std::uint32_t generation, NodeCheckpoint checkpoint,
                      const std::string& push_codec) {
  const KeptState state{.at = {.generation = generation, .step = checkpoint.step},
                        .undelivered = undelivered(checkpoint, push_codec)};
  states_.push_back({state, std::make_shared<const NodeCheckpoint>(std::move(checkpoint))});
  if (states_.size() > most_) states_.pop_front();
}

std::vector<KeptState> HeldStates::told() const {
  std::vector<KeptState> told;
  for (const Held& held : states_) told.push_back(held.state);
  return told;
}

std::shared_ptr<const NodeCheckpoint> HeldStates::find(const Boundary& at) const {
  const auto found = std::ranges::find(states_, at, [](const Held& held) { return held.state.at; });
  return found == states_.end() ? nullptr : found->checkpoint;
}

}  // namespace tersewire::trainer
