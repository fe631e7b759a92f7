// What nodes report to rank 0 beside the exchange: parsing, and keeping the two apart.
#include "trainer/members/node_report.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

using namespace std::chrono_literals;

const std::vector<std::uint64_t> kTail{7, 8, 9};

Incoming worker_report(std::uint64_t steps) {
  WorkerReport report;
  report.totals.steps = steps;
  report.counters.pushed_bytes = 5;
  return {.from = 1, .bytes = pack_report(report, std::as_bytes(std::span(kTail)))};
}

SharedBytes exchange_message(std::size_t size) {
  return std::make_shared<const Bytes>(size, static_cast<std::byte>('T'));
}

TEST(NodeReport, ComesBackWithItsTail) {
  const Incoming message = worker_report(42);
  ByteView tail;
  const auto report = parse_report<WorkerReport>(message, 24, &tail);
  EXPECT_EQ(report.totals.steps, 42U);
  EXPECT_EQ(report.counters.pushed_bytes, 5U);
  EXPECT_TRUE(std::ranges::equal(tail, std::as_bytes(std::span(kTail))));
}

TEST(NodeReport, AnythingElseIsRefused) {
  const auto refused = [](const Incoming& message, std::size_t tail_bytes) {
    try {
      parse_report<WorkerReport>(message, tail_bytes);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDataLoss;
    }
  };
  const Incoming whole = worker_report(1);
  EXPECT_FALSE(refused(whole, 24));
  EXPECT_TRUE(refused(whole, 23));
  EXPECT_TRUE(refused(whole, 25));
  EXPECT_TRUE(refused({.from = 1, .bytes = pack_report(StartReport{})}, 24));
  for (std::size_t size = 0; size < whole.bytes->size(); ++size) {
    const Bytes part(whole.bytes->begin(),
                     whole.bytes->begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(refused({.from = 1, .bytes = std::make_shared<const Bytes>(part)}, 24)) << size;
  }
  Bytes other_kind = *whole.bytes;
  other_kind[3] ^= std::byte{1};
  EXPECT_TRUE(refused({.from = 1, .bytes = std::make_shared<const Bytes>(other_kind)}, 24));
}

TEST(SortingTransport, ReportsMayOvertakeTheExchange) {
  const auto ends = make_in_process_network(3);
  SortingTransport first(*ends[0]);
  ends[1]->send(0, worker_report(1).bytes);
  ends[1]->send(0, exchange_message(20));
  ends[2]->send(0, pack_report(StartReport{}));
  ends[2]->send(0, exchange_message(0));
  ends[1]->send(0, worker_report(2).bytes);

  const auto next_size = [&] { return first.receive(1s)->bytes->size(); };
  EXPECT_EQ(next_size(), 20U);
  parse_report<StartReport>(first.receive_report(2, {1s, 1s}), 0);
  EXPECT_EQ(parse_report<WorkerReport>(first.receive_report(1, {1s, 1s}), 24).totals.steps, 1U);
  EXPECT_EQ(parse_report<WorkerReport>(first.receive_report(1, {1s, 1s}), 24).totals.steps, 2U);
  EXPECT_EQ(next_size(), 0U);
  EXPECT_FALSE(first.receive(0ms));
  try {
    first.receive_report(1, {1ms, 1ms});
    ADD_FAILURE() << "there was no third report";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  }
}

}  // namespace
}  // namespace tersewire::trainer
