#include "replica_check.h"

#include <utility>

#include "errors.h"
#include "tersewire/message.h"

namespace tersewire {

std::optional<std::uint64_t> ReplicaCheck::add(std::size_t tensor, std::uint64_t step,
                                               std::span<const float> values) {
  if (std::exchange(summed_before_[tensor], step) == step) return std::nullopt;
  if (std::exchange(summing_, step) != step) sum_ = summed_ = 0;
  sum_ += tensor_checksum(static_cast<std::uint32_t>(tensor), values);
  if (++summed_ < summed_before_.size()) return std::nullopt;
  summed_ = 0;
  return std::exchange(sum_, 0);
}

std::optional<ReplicaCheck::Other> ReplicaCheck::take(int from, std::uint64_t step,
                                                      std::uint64_t checksum) {
  // A worker that others have overtaken leaves steps incomplete.
  constexpr std::size_t kMostHeld = 4;
  const auto worker = static_cast<std::size_t>(from);
  if (worker >= said_before_.size() || step <= said_before_[worker]) {
    fail(ErrorCode::kDataLoss, "message from rank {}: a checksum before step {} is not due", from,
         step);
  }
  said_before_[worker] = step;
  const auto [place, fresh] = said_.try_emplace(step, Said{{from, checksum}, 0});
  Said& said = place->second;
  if (checksum != said.first.checksum) return said.first;
  if (++said.workers == said_before_.size()) {
    agreed_before_ = step;
    said_.erase(place);
  } else if (said_.size() > kMostHeld) {
    said_.erase(said_.begin());
  }
  return std::nullopt;
}

}  // namespace tersewire
