// What a member of an elastic job keeps in memory to go on from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tersewire/grpc_members.h"
#include "trainer/files/checkpoint.h"

namespace tersewire::trainer {

// The newest states of one member. One thread at a time.
class HeldStates {
 public:
  // Keeps `most` of them.
  explicit HeldStates(std::size_t most) : most_(most) {}

  // A state of that generation, whose job pushes with this codec.
  void keep(std::uint32_t generation, NodeCheckpoint checkpoint, const std::string& push_codec);
  void clear() { states_.clear(); }

  [[nodiscard]] bool empty() const { return states_.empty(); }
  // What the hub is told of them.
  [[nodiscard]] std::vector<KeptState> told() const;
  // Null where it is not held.
  [[nodiscard]] std::shared_ptr<const NodeCheckpoint> find(const Boundary& at) const;

 private:
  struct Held {
    KeptState state;
    std::shared_ptr<const NodeCheckpoint> checkpoint;
  };

  std::size_t most_;
  std::deque<Held> states_;  // oldest first
};

}  // namespace tersewire::trainer
