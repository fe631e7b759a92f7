// What the ends of several transports share.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "errors.h"
#include "tersewire/transport.h"

namespace tersewire {

// A reason for which a job has ended is cut off where it is longer.
inline constexpr std::size_t kMostReasonBytes = std::size_t{1} << 14;
// Until a job says less no larger message is believed.
inline constexpr std::size_t kUnknownLongest = std::size_t{1} << 40;
// How often an end says that it is alive, where it has said nothing else.
inline constexpr std::chrono::milliseconds kAliveEvery{250};
// How long an end that leaves waits for the others where the job has failed.
inline constexpr std::chrono::milliseconds kLongestFarewell{2000};

// Throws kInvalidArgument for a receiver that the job has not, and for no message.
inline void check_sent(int from, int to, int ranks, const SharedBytes& bytes) {
  if (bytes == nullptr) {
    fail(ErrorCode::kInvalidArgument, "rank {} sends rank {} no message but null; pass its bytes",
         from, to);
  }
  if (to >= 0 && to < ranks) return;
  fail(ErrorCode::kInvalidArgument, "rank {} cannot send to rank {}: the job has ranks 0 to {}",
       from, to, ranks - 1);
}

// Throws kDataLoss for a message that is longer than the job says.
inline void check_announced(std::uint64_t bytes, std::uint64_t longest) {
  if (bytes <= longest) return;
  fail(ErrorCode::kDataLoss,
       "it announces {} bytes, and no message of this job has more than {}; start all nodes with "
       "the same arguments",
       bytes, longest);
}

[[noreturn]] inline void fail_receiver_has_left(int from, int to) {
  fail(ErrorCode::kUnavailable,
       "rank {} has left the job, and rank {} goes on; let every rank end after the same step", to,
       from);
}

// A wait that the system's clocks can add to the time: beyond that it would be none.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds wait) {
  return std::min<std::chrono::milliseconds>(wait, WaitLimits::kLongest);
}
// Throws kInvalidArgument for limits that cannot be kept.
inline void check_limits(const WaitLimits& limits) {
  for (const auto& [name, limit] :
       {std::pair{"deadline", limits.deadline}, {"progress limit", limits.progress_limit}}) {
    if (limit >= std::chrono::milliseconds(1) && limit <= WaitLimits::kLongest) continue;
    fail(ErrorCode::kInvalidArgument, "a {} of {} ms is not between 1 ms and 30 days", name,
         limit.count());
  }
}
// Limits that a transport keeps: no longer than these. Throws kInvalidArgument for less than 1 ms.
inline WaitLimits bounded(const WaitLimits& limits) {
  const WaitLimits kept{.deadline = bounded(limits.deadline),
                        .progress_limit = bounded(limits.progress_limit)};
  check_limits(kept);
  return kept;
}

// Waits until `ready()`, for no longer than `timeout`. A wait of none, for which the system would
// take 50 us, is none.
template <typename Ready>
void wait_at_most(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                  std::chrono::milliseconds timeout, const Ready& ready) {
  if (timeout.count() > 0) changed.wait_for(lock, bounded(timeout), ready);
}

// Keeps why the job has ended, where it is the first reason; whether it was.
inline bool keep_first_reason(std::optional<std::string>& kept,
                              const std::string& reason) noexcept {
  if (kept) return false;
  try {
    kept = reason;
  } catch (...) {
    kept.emplace();  // out of memory for the sentence: the job still has to end
  }
  return true;
}

}  // namespace tersewire
