// What transports check alike: the lengths of messages, and how long they wait for room.
#pragma once

#include "errors.h"
#include "tersewire/transport.h"

namespace tersewire {

// Throws kDataLoss where another node may not send such a message.
inline void check_may_arrive(int from, std::uint64_t bytes, const TransportLimits& limits) {
  if (bytes <= limits.longest_message) return;
  fail(ErrorCode::kDataLoss,
       "rank {} sent a message of {} bytes, and the longest of this job has {}; start the same "
       "program with the same arguments on every rank",
       from, bytes, limits.longest_message);
}

[[noreturn]] inline void fail_for_want_of_room(int rank, int to, std::chrono::milliseconds waited) {
  fail(ErrorCode::kDeadlineExceeded,
       "rank {} has received nothing of what rank {} sent to it for {} ms, and no more is held for "
       "it; look what it is doing",
       to, rank, waited.count());
}

}  // namespace tersewire
