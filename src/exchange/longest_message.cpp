#include "longest_message.h"

#include <algorithm>

#include "tersewire/message.h"

namespace tersewire {
namespace {

// A frame's header, and what the payload of a piece of a tensor has beyond its share.
constexpr std::uint64_t kFrameBytes = kMaxFrameOverheadBytes + 64;

// Whatever travels of a tensor in one message: what either codec makes of it, its values as they
// are, or sums of levels, and its scalers.
std::uint64_t longest_of(const Placement& placement, std::size_t tensor) {
  const std::size_t elems = placement.job.tensors[tensor].elems();
  const std::uint64_t encoded = std::max(placement.push_codecs[tensor]->max_encoded_bytes(elems),
                                         placement.pull_codecs[tensor]->max_encoded_bytes(elems));
  return std::max<std::uint64_t>(encoded, elems * sizeof(float)) + 2 * kFrameBytes;
}

}  // namespace

std::uint64_t longest_message(const Placement& placement) {
  std::uint64_t longest = 0;
  std::uint64_t scalers = 0;
  for (const auto& bucket : placement.buckets) {
    std::uint64_t bytes = 0;
    for (const std::size_t tensor : bucket) bytes += longest_of(placement, tensor);
    longest = std::max(longest, bytes);
    // No more than what is encoded under them; those of all tensors travel together.
    if (placement.options.scaler_sharing) scalers += bytes;
  }
  // Rings cut a bucket into as many frames as there are workers, or fewer; which pushes were used
  // is a bit for each worker and tensor.
  const auto workers = static_cast<std::uint64_t>(placement.job.workers);
  const std::uint64_t of_workers =
      workers * kFrameBytes + placement.job.tensors.size() * (workers / 8 + 1);
  return kMessageOverheadBytes + 2 * std::max(longest, scalers) + of_workers;
}

}  // namespace tersewire
