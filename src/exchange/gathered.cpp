#include "gathered.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "errors.h"
#include "tersewire/codec.h"

namespace tersewire {
namespace {

// A worker can be one exchange ahead of another: its next contribution waits beside its last.
constexpr std::size_t kMostHeld = 2;

}  // namespace

void Gathered::hold(int from, Contribution contribution) {
  const std::size_t held = held_.count(from);
  if (held == kMostHeld) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {}, with {} steps waiting",
         from, name_, contribution.step, kMostHeld);
  }
  held_.emplace(from, std::move(contribution));
  if (held == 0) ++present_;
}

void Gathered::average(std::uint64_t step, std::span<float> mean, ThreadPool* pool,
                       Followed* followed) {
  std::ranges::fill(mean, 0.0F);
  const float weight = 1.0F / static_cast<float>(workers_);
  const auto add = [&](int from, const Contribution& contribution) {
    with_context([&] { return fmt::format("push of {} from worker {}", name_, from); },
                 [&] {
                   decode_add(contribution.frame.codec, contribution.frame.payload, weight, mean,
                              pool);
                 });
  };
  std::vector<std::pair<int, Contribution>> whole;
  present_ = 0;
  for (auto first = held_.begin(); first != held_.end();) {
    const int from = first->first;
    const Contribution contribution = std::move(first->second);
    first = held_.erase(first);
    if (first != held_.end() && first->first == from) {
      ++present_;
      ++first;
    }
    if (contribution.step != step) {
      fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {} in place of step {}",
           from, name_, contribution.step, step);
    }
    if (followed != nullptr && is_whole(contribution.frame.codec)) {
      whole.emplace_back(from, contribution);
    } else {
      add(from, contribution);
    }
  }
  if (followed != nullptr && whole.size() < workers_) followed->add(mean);
  for (const auto& [from, contribution] : whole) add(from, contribution);
}

}  // namespace tersewire
