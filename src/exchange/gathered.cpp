#include "gathered.h"

#include <algorithm>

#include "errors.h"
#include "tersewire/codec.h"

namespace tersewire {
namespace {

// A worker can be one exchange ahead of another: its next contribution waits beside its last.
constexpr std::size_t kMostHeld = 2;

}  // namespace

void Gathered::hold(int from, Contribution contribution) {
  auto& held = held_[static_cast<std::size_t>(from)];
  if (held.size() == kMostHeld) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {}, with {} steps waiting",
         from, name_, contribution.step, kMostHeld);
  }
  held.push_back(std::move(contribution));
}

bool Gathered::complete() const {
  return std::ranges::none_of(held_, [](const auto& of_rank) { return of_rank.empty(); });
}

void Gathered::average(std::uint64_t step, std::span<float> mean, ThreadPool* pool) {
  std::ranges::fill(mean, 0.0F);
  const float weight = 1.0F / static_cast<float>(held_.size());
  for (std::size_t from = 0; from < held_.size(); ++from) {
    const Contribution contribution = std::move(held_[from].front());
    held_[from].pop_front();
    if (contribution.step != step) {
      fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {} in place of step {}",
           from, name_, contribution.step, step);
    }
    with_context([&] { return fmt::format("push of {} from worker {}", name_, from); },
                 [&] {
                   decode_add(contribution.frame.codec, contribution.frame.payload, weight, mean,
                              pool);
                 });
  }
}

}  // namespace tersewire
