#include "trainer/node_report.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr char kReportMark[2] = {'T', 'R'};

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
    : end_(end), reports_(static_cast<std::size_t>(end.size())) {}

std::optional<Incoming> SortingTransport::receive(std::chrono::milliseconds timeout) {
  return next(of_exchange_, timeout);
}

Incoming SortingTransport::receive_report(int from, std::chrono::milliseconds timeout) {
  auto report = next(reports_.at(static_cast<std::size_t>(from)), timeout);
  if (report) return std::move(*report);
  throw Error(ErrorCode::kDeadlineExceeded, "no report of rank " + std::to_string(from) +
                                                " arrived for " + std::to_string(timeout.count()) +
                                                " ms; look whether it is running");
}

std::optional<Incoming> SortingTransport::next(std::deque<Incoming>& queue,
                                               std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (queue.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    auto message = end_.receive(std::max(left, std::chrono::milliseconds(0)));
    if (!message) return std::nullopt;
    const Bytes& bytes = *message->bytes;
    const bool is_report = bytes.size() >= sizeof(kReportMark) &&
                           std::memcmp(bytes.data(), kReportMark, sizeof(kReportMark)) == 0;
    auto& its_queue =
        is_report ? reports_.at(static_cast<std::size_t>(message->from)) : of_exchange_;
    its_queue.push_back(std::move(*message));
  }
  Incoming message = std::move(queue.front());
  queue.pop_front();
  return message;
}

template SharedBytes pack_report(const StartReport&, ByteView);
template SharedBytes pack_report(const WorkerReport&, ByteView);
template SharedBytes pack_report(const ServerReport&, ByteView);
template StartReport parse_report(const Incoming&, std::size_t, ByteView*);
template WorkerReport parse_report(const Incoming&, std::size_t, ByteView*);
template ServerReport parse_report(const Incoming&, std::size_t, ByteView*);

}  // namespace tersewire::trainer
