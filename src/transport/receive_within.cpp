#include <algorithm>

#include "errors.h"
#include "tersewire/transport.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How often peers are looked at: of the shorter limit, this part.
constexpr int kLooks = 8;
constexpr milliseconds kLongestLook(500);
// A look that takes so much longer means that this process was suspended, or got no processor.
constexpr milliseconds kLate(250);

milliseconds since(Clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - time);
}

// A peer that has been silent for too long, or that none is left; none: all is well.
std::optional<std::string> what_is_wrong(const Transport& transport, milliseconds deadline) {
  bool alone = transport.size() > 1;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (rank == transport.rank()) continue;
    const Peer peer = transport.peer(rank);
    if (peer.gone) continue;
    alone = false;
    if (since(peer.heard) >= deadline) {
      return fmt::format("rank {} has given no sign of life for {} ms; look whether it is running",
                         rank, since(peer.heard).count());
    }
  }
  if (!alone) return std::nullopt;
  return "every other node has left the network; look why they ended before this one";
}

}  // namespace

Incoming receive_within(Transport& transport, const WaitLimits& limits,
                        const std::string& waited_for) {
  const milliseconds look = std::clamp(std::min(limits.deadline, limits.progress_limit) / kLooks,
                                       milliseconds(1), kLongestLook);
  for (milliseconds waited{0};;) {
    const Clock::time_point began = Clock::now();
    if (auto incoming = transport.receive(look)) return std::move(*incoming);
    const milliseconds took = since(began);
    waited += std::min(took, look + kLate);
    if (took > look + kLate) continue;  // what peers said meanwhile is heard now
    if (waited >= limits.deadline) {
      if (const auto wrong = what_is_wrong(transport, limits.deadline)) {
        fail(ErrorCode::kDeadlineExceeded, "nothing arrived for {} ms while waiting for {}: {}",
             limits.deadline.count(), waited_for, *wrong);
      }
    }
    if (waited >= limits.progress_limit) {
      fail(ErrorCode::kDeadlineExceeded,
           "nothing arrived for {} ms while waiting for {}, though every other node is alive; look "
           "for one that computes or writes without end, or raise the progress limit",
           limits.progress_limit.count(), waited_for);
    }
  }
}

}  // namespace tersewire
