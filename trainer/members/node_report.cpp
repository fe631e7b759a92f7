#include "trainer/members/node_report.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "tersewire/error.h"
#include "trainer/members/decided_rungs.h"
#include "trainer/members/server_copy.h"
#include "trainer/members/stop_point.h"

namespace tersewire::trainer {
namespace {

constexpr char kReportMark[2] = {'T', 'R'};

}  // namespace

template <typename Report>
SharedBytes pack_report(const Report& report, ByteView tail) {
  static_assert(std::is_trivially_copyable_v<Report>);
  const ByteView kind = std::as_bytes(std::span(&Report::kKind, 1));
  const ByteView head = std::as_bytes(std::span(&report, 1));
  Bytes bytes(kind.begin(), kind.end());
  bytes.reserve(kind.size() + head.size() + tail.size());
  for (const ByteView piece : {head, tail}) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return std::make_shared<const Bytes>(std::move(bytes));
}

template <typename Report>
Report parse_report(const Incoming& message, std::size_t tail_bytes, ByteView* tail) {
  const Bytes& bytes = *message.bytes;
  Report report;
  if (bytes.size() != sizeof(Report::kKind) + sizeof(report) + tail_bytes ||
      !begins_as<Report>(bytes)) {
    throw Error(
        ErrorCode::kDataLoss,
        "rank " + std::to_string(message.from) +
            " sent something other than the report that is due; start the same program with "
            "the same arguments on every rank");
  }
  std::memcpy(&report, bytes.data() + sizeof(Report::kKind), sizeof(report));
  if (tail != nullptr) *tail = ByteView(bytes).last(tail_bytes);
  return report;
}

void await(const Transport& end, int rank, const std::string& awaited, const WaitLimits& limits,
           const std::function<bool(std::chrono::milliseconds)>& has_come) {
  constexpr std::chrono::milliseconds kLook(250);
  const auto begin = std::chrono::steady_clock::now();
  while (!has_come(kLook)) {
    const Peer peer = end.peer(rank);
    const std::string who = "rank " + std::to_string(rank);
    if (peer.gone) {
      throw Error(ErrorCode::kUnavailable, who + ", which was to report " + awaited + ", " +
                                               *peer.gone + "; start the job again");
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - peer.heard <= limits.deadline && now - begin <= limits.progress_limit) continue;
    throw Error(
        ErrorCode::kDeadlineExceeded,
        who + " has not reported " + awaited +
            " in time; check whether it hangs, or raise the limits (--deadline, --progress-limit; "
            "timeout= in Python)");
  }
}

SortingTransport::SortingTransport(Transport& end)
    : PassingTransport(end), reports_(static_cast<std::size_t>(end.size())) {}

std::optional<Incoming> SortingTransport::receive(std::chrono::milliseconds timeout) {
  if (auto message = take_first(of_exchange_)) return message;
  return receive_unkept(timeout, [this](Incoming& message) { return keep(message); });
}

Incoming SortingTransport::receive_report(int from, const WaitLimits& limits) {
  auto& reports = reports_.at(static_cast<std::size_t>(from));
  while (reports.empty()) {
    Incoming message = receive_within(end(), limits, "a report from rank " + std::to_string(from));
    if (!keep(message)) of_exchange_.push_back(std::move(message));
  }
  return *take_first(reports);
}

bool SortingTransport::keep(Incoming& message) {
  const Bytes& bytes = *message.bytes;
  const bool is_report = bytes.size() >= sizeof(kReportMark) &&
                         std::memcmp(bytes.data(), kReportMark, sizeof(kReportMark)) == 0;
  if (is_report) reports_.at(static_cast<std::size_t>(message.from)).push_back(std::move(message));
  return is_report;
}

template SharedBytes pack_report(const StartReport&, ByteView);
template SharedBytes pack_report(const WorkerReport&, ByteView);
template SharedBytes pack_report(const ServerReport&, ByteView);
template SharedBytes pack_report(const DecidedSteps&, ByteView);
template SharedBytes pack_report(const ServerPiece&, ByteView);
template SharedBytes pack_report(const StopMessage&, ByteView);
template StartReport parse_report(const Incoming&, std::size_t, ByteView*);
template WorkerReport parse_report(const Incoming&, std::size_t, ByteView*);
template ServerReport parse_report(const Incoming&, std::size_t, ByteView*);
template DecidedSteps parse_report(const Incoming&, std::size_t, ByteView*);
template ServerPiece parse_report(const Incoming&, std::size_t, ByteView*);
template StopMessage parse_report(const Incoming&, std::size_t, ByteView*);

}  // namespace tersewire::trainer
