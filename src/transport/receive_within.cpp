#include <fmt/format.h>

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
  return std::chrono::floor<milliseconds>(Clock::now() - time);
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Throws where a peer has been silent for too long, or none is left.
void check_peers(const Transport& transport, milliseconds deadline, const std::string& waited_for) {
  bool alone = transport.size() > 1;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (rank == transport.rank()) continue;
    const Peer peer = transport.peer(rank);
    if (peer.gone) continue;
    alone = false;
    const milliseconds silent = since(peer.heard);
    if (silent < deadline) continue;
    fail(ErrorCode::kDeadlineExceeded,
         "rank {} has heard nothing from rank {} for {:.3g} s while waiting for {}; check whether "
         "it is running",
         transport.rank(), rank, seconds(silent), waited_for);
  }
  if (!alone) return;
  fail(ErrorCode::kDeadlineExceeded,
       "rank {} was left alone while waiting for {}: every other node has left the network; find "
       "out why they ended before this one",
       transport.rank(), waited_for);
}

// A rank that has left although something is still to come from it. Few ranks are asked after:
// nodes that wait should not look at all others.
std::optional<int> missing(const Transport& transport, const std::function<bool(int)>& needs) {
  for (int rank = 0; needs && rank < transport.size(); ++rank) {
    if (rank != transport.rank() && needs(rank) && transport.peer(rank).gone) return rank;
  }
  return std::nullopt;
}

// Behind "waiting for something": from whom, where that is known, and of few.
std::string from_whom(const Transport& transport, const std::function<bool(int)>& needs) {
  constexpr int kMostNamed = 4;
  std::string ranks;
  int count = 0;
  for (int rank = 0; needs && rank < transport.size(); ++rank) {
    if (rank == transport.rank() || !needs(rank)) continue;
    if (++count <= kMostNamed) ranks += fmt::format("{}rank {}", count > 1 ? ", " : " from ", rank);
  }
  if (count > kMostNamed) ranks += fmt::format(" and {} more", count - kMostNamed);
  return ranks;
}

}  // namespace

Incoming receive_within(Transport& transport, const WaitLimits& limits,
                        const std::string& waited_for, const std::function<bool(int)>& needs) {
  const milliseconds look = std::clamp(std::min(limits.deadline, limits.progress_limit) / kLooks,
                                       milliseconds(1), kLongestLook);
  for (Clock::duration waited_exactly{0};;) {
    const Clock::time_point began = Clock::now();
    if (auto incoming = transport.receive(look)) return std::move(*incoming);
    const Clock::duration took = Clock::now() - began;
    // Compared in milliseconds: in those of the clock a limit may overflow.
    waited_exactly += std::min<Clock::duration>(took, look + kLate);
    const auto waited = std::chrono::floor<milliseconds>(waited_exactly);
    if (took > look + kLate) continue;  // what peers said meanwhile is heard now
    if (const auto gone = missing(transport, needs)) {
      // Its last message may be in the hands of another thread of this node.
      if (auto incoming = transport.receive(look)) return std::move(*incoming);
      fail(ErrorCode::kUnavailable,
           "rank {} has left the job, and rank {} waits for {}; let every rank end after the same "
           "step",
           *gone, transport.rank(), waited_for);
    }
    if (waited >= limits.deadline) check_peers(transport, limits.deadline, waited_for);
    if (waited >= limits.progress_limit) {
      fail(ErrorCode::kDeadlineExceeded,
           "nothing has arrived at rank {} for {:.3g} s while waiting for {}{}, though every other "
           "node is alive; look for one that computes or writes without end, or raise the progress "
           "limit (train --progress-limit; timeout= in Python; Job::progress_limit)",
           transport.rank(), seconds(limits.progress_limit), waited_for,
           from_whom(transport, needs));
    }
  }
}

}  // namespace tersewire
