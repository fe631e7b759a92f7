#include "trainer/loop/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "tersewire/error.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {
namespace {

constexpr double kGrowth = 10;
constexpr double kByHeart = 0.01;  // of the first loss
constexpr std::size_t kNumbers = 3;

}  // namespace

void LossWatch::add(std::uint64_t step, double loss) {
  if (!begun_) {
    begun_ = true;
    first_ = best_ = loss;
  }
  best_ = std::min(best_, loss);
  const bool diverged = !(loss < kGrowth * std::max(best_, kByHeart * first_));
  if (!diverged) {
    diverged_step_ = 0;
  } else if (diverged_step_ == 0) {
    diverged_step_ = step;
  }
}

std::optional<std::uint64_t> LossWatch::diverged_step() const {
  return diverged_step_ > 0 ? std::optional(diverged_step_) : std::nullopt;
}

std::deque<double> LossWatch::state() const {
  if (!begun_) return {};
  return {first_, best_, static_cast<double>(diverged_step_)};
}

void LossWatch::resume(const std::deque<double>& state) {
  if (state.empty()) return;
  if (state.size() != kNumbers || !(state[2] >= 0 && state[2] <= kMostSteps)) {
    throw Error(ErrorCode::kDataLoss,
                "the checkpoint's record of losses is damaged; use another copy of it");
  }
  begun_ = true;
  first_ = state[0];
  best_ = state[1];
  diverged_step_ = static_cast<std::uint64_t>(state[2]);
}

}  // namespace tersewire::trainer
