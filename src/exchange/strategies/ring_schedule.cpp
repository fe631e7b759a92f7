#include "ring_schedule.h"

namespace tersewire {
namespace {

// A ring as one of its nodes sees it; a part of the values for each node.
struct Circle {
  std::size_t size;
  std::size_t me;
  int next;
  int previous;
  PieceRange first_part;

  [[nodiscard]] PieceRange part(std::size_t number) const {
    return {.first = first_part.first + number % size * first_part.count,
            .count = first_part.count};
  }
};

// The workers `rank` + k `stride`, of which `rank` is number `me` of `size`.
Circle make_circle(int rank, std::size_t me, std::size_t size, std::size_t stride,
                   PieceRange first_part) {
  const auto rank_of = [&](std::size_t number) {
    const auto base = static_cast<std::size_t>(rank) - me * stride;
    return static_cast<int>(base + number % size * stride);
  };
  return {.size = size,
          .me = me,
          .next = rank_of(me + 1),
          .previous = rank_of(me + size - 1),
          .first_part = first_part};
}

// Algorithm 1, first loop: afterwards this node has the whole sum of part me + 1.
void add_up(const Circle& ring, std::vector<RingTask>& tasks) {
  for (std::size_t hop = 1; hop < ring.size; ++hop) {
    const std::size_t received = ring.me + ring.size - hop;
    tasks.push_back({RingAction::kSendSum, ring.part(received + 1), ring.next});
    tasks.push_back({RingAction::kAddSum, ring.part(received), ring.previous});
  }
}

// Second loop: what each node has whole goes to all.
void pass_around(const Circle& ring, std::vector<RingTask>& tasks) {
  for (std::size_t hop = 1; hop < ring.size; ++hop) {
    const std::size_t received = ring.me + 1 + ring.size - hop;
    tasks.push_back({RingAction::kSendComplete, ring.part(received + 1), ring.next});
    tasks.push_back({RingAction::kTakeComplete, ring.part(received), ring.previous});
  }
}

}  // namespace

std::vector<RingTask> make_ring_schedule(const RingLayout& layout, int rank) {
  const std::size_t member = static_cast<std::size_t>(rank) % layout.group();
  const Circle group = make_circle(rank, member, layout.group(), 1, layout.block(0));
  std::vector<RingTask> tasks;
  add_up(group, tasks);
  const std::size_t own = (member + 1) % layout.group();
  if (layout.is_tree()) {
    const int server = layout.server_of(own);
    tasks.push_back({RingAction::kSendSum, layout.block(own), server});
    tasks.push_back({RingAction::kTakeComplete, layout.block(own), server});
  } else {
    const Circle groups =
        make_circle(rank, static_cast<std::size_t>(rank) / layout.group(), layout.groups(),
                    layout.group(), {.first = layout.block(own).first, .count = 1});
    add_up(groups, tasks);
    tasks.push_back({RingAction::kComplete, groups.part(groups.me + 1), rank});
    pass_around(groups, tasks);
  }
  pass_around(group, tasks);
  return tasks;
}

}  // namespace tersewire
