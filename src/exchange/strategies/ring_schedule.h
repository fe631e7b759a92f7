// What a worker of a ring job does for each bucket in each step, in this order: INCEPTIONN's
// Algorithm 1 with the indices of its own example, once in the group and, between its two loops,
// once among the groups (Fig. 1c) or through servers (Fig. 1b). Every hop sends before it receives,
// and sending never waits, so that no ring waits for itself.
#pragma once

#include <vector>

#include "ring_layout.h"

namespace tersewire {

enum class RingAction {
  kSendSum,       // encode the sum so far and send it
  kAddSum,        // receive a sum so far and add it to what is here
  kComplete,      // encode the complete sum once, and take what that decodes to
  kSendComplete,  // send the bytes of a complete sum as they are
  kTakeComplete,  // receive the bytes of a complete sum, and take what they decode to
};

struct RingTask {
  RingAction action;
  PieceRange pieces;
  int peer;  // whom it sends to or receives from; this worker itself for kComplete
};

inline bool receives(const RingTask& task) {
  return task.action == RingAction::kAddSum || task.action == RingAction::kTakeComplete;
}

inline bool encodes(const RingTask& task) {
  return task.action == RingAction::kSendSum || task.action == RingAction::kComplete;
}

// For the worker of this rank. Of its tasks that encode, each value is in one.
std::vector<RingTask> make_ring_schedule(const RingLayout& layout, int rank);

}  // namespace tersewire
