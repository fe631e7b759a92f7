#include "trainer/node_report.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "tersewire/error.h"
#include "trainer/decided_rungs.h"

namespace tersewire::trainer {
namespace {

constexpr char kReportMark[2] = {'T', 'R'};

Incoming taken_from(std::deque<Incoming>& queue) {
  Incoming message = std::move(queue.front());
  queue.pop_front();
  return message;
}

}  // namespace

template <typename Report>
SharedBytes pack_report(const Report& report, ByteView tail) {
  static_assert(std::is_trivially_copyable_v<Report>);
  Bytes bytes(sizeof(Report::kKind) + sizeof(report) + tail.size());
  std::memcpy(bytes.data(), &Report::kKind, sizeof(Report::kKind));
  std::memcpy(bytes.data() + sizeof(Report::kKind), &report, sizeof(report));
  std::ranges::copy(tail, bytes.end() - static_cast<std::ptrdiff_t>(tail.size()));
  return std::make_shared<const Bytes>(std::move(bytes));
}

template <typename Report>
Report parse_report(const Incoming& message, std::size_t tail_bytes, ByteView* tail) {
  const Bytes& bytes = *message.bytes;
  Report report;
  if (bytes.size() != sizeof(Report::kKind) + sizeof(report) + tail_bytes ||
      std::memcmp(bytes.data(), &Report::kKind, sizeof(Report::kKind)) != 0) {
    throw Error(ErrorCode::kDataLoss,
                "rank " + std::to_string(message.from) +
                    " sent something else than the report that is due; start the same program with "
                    "the same arguments on every rank");
  }
  std::memcpy(&report, bytes.data() + sizeof(Report::kKind), sizeof(report));
  if (tail != nullptr) *tail = ByteView(bytes).last(tail_bytes);
  return report;
}

SortingTransport::SortingTransport(Transport& end)
    : PassingTransport(end), reports_(static_cast<std::size_t>(end.size())) {}

std::optional<Incoming> SortingTransport::receive(std::chrono::milliseconds timeout) {
  if (!of_exchange_.empty()) return taken_from(of_exchange_);
  return receive_unkept(timeout, [this](Incoming& message) { return keep(message); });
}

Incoming SortingTransport::receive_report(int from, const WaitLimits& limits) {
  auto& reports = reports_.at(static_cast<std::size_t>(from));
  while (reports.empty()) {
    Incoming message = receive_within(end(), limits, "a report of rank " + std::to_string(from));
    if (!keep(message)) of_exchange_.push_back(std::move(message));
  }
  return taken_from(reports);
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
template StartReport parse_report(const Incoming&, std::size_t, ByteView*);
template WorkerReport parse_report(const Incoming&, std::size_t, ByteView*);
template ServerReport parse_report(const Incoming&, std::size_t, ByteView*);
template DecidedSteps parse_report(const Incoming&, std::size_t, ByteView*);

}  // namespace tersewire::trainer
