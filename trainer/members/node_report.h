// What the nodes of a job tell rank 0, beside what the exchange sends: before its first message
// what they were started with, and after its last what they came to. These are messages of the
// transport that only the trainer reads, between nodes that run the same program. They begin with
// "TR", the exchange's with "TW".
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/passing_transport.h"
#include "trainer/members/totals.h"

namespace tersewire::trainer {

// What must be the same on every node, as checksums.
struct StartReport {
  static constexpr std::uint64_t kKind = 0x3154524154535254;  // "TRSTART1"

  std::uint64_t arguments = 0;
  std::uint64_t data = 0;
  std::uint64_t model = 0;  // the run's initial parameters; in an elastic job those it goes on with
};

// A worker's end; the XXH64 of each of its parameters follows.
struct WorkerReport {
  static constexpr std::uint64_t kKind = 0x33524B524F575254;  // "TRWORKR3"

  Counters counters;    // of this process
  Totals totals;        // of the run
  double loss_sum = 0;  // of its last steps
  std::uint64_t losses = 0;
  std::uint64_t diverged_step = 0;  // 0: it has not
};

// A server's end; its tensors follow in their order, the values of each and, where one is kept,
// their moving average.
struct ServerReport {
  static constexpr std::uint64_t kKind = 0x3152565245535254;  // "TRSERVR1"

  Counters counters;
};

// A report with `tail` behind it, as one message.
template <typename Report>
SharedBytes pack_report(const Report& report, ByteView tail = {});

// The report in a message whose tail should have `tail_bytes`. Throws kDataLoss where it is
// something else. `tail` points into the message.
template <typename Report>
Report parse_report(const Incoming& message, std::size_t tail_bytes, ByteView* tail = nullptr);

// Whether a message is one of these, as far as its first bytes say.
template <typename Report>
bool begins_as(ByteView message) {
  return message.size() >= sizeof(Report::kKind) &&
         std::memcmp(message.data(), &Report::kKind, sizeof(Report::kKind)) == 0;
}

// For a thread beside the one that receives: waits for what a node has to say (`awaited`), of which
// `has_come` says whether it came within a time. Throws kUnavailable where that node is gone, and
// kDeadlineExceeded where it gives no sign of life, or keeps this one waiting too long.
void await(const Transport& end, int rank, const std::string& awaited, const WaitLimits& limits,
           const std::function<bool(std::chrono::milliseconds)>& has_come);

// Rank 0's end: keeps reports, which come when their senders are ready, apart from the messages of
// the exchange. One thread at a time receives.
class SortingTransport final : public PassingTransport {
 public:
  // `end` must outlive it.
  explicit SortingTransport(Transport& end);

  // Never a report.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;

  // The next report of one node. Throws kDeadlineExceeded like receive_within().
  Incoming receive_report(int from, const WaitLimits& limits);

 private:
  // Whether the message was a report.
  bool keep(Incoming& message);

  std::deque<Incoming> of_exchange_;
  std::vector<std::deque<Incoming>> reports_;  // by sender
};

}  // namespace tersewire::trainer
