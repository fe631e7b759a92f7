// The in-process transport: order, wholeness, deadlines, abort.
#include "tersewire/transport.h"

#include <gtest/gtest.h>

#include <thread>

#include "tersewire/error.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

SharedBytes message(std::size_t size, int value) {
  return std::make_shared<const Bytes>(size, static_cast<std::byte>(value));
}

TEST(InProcessTransport, DeliversWholeAndInOrderFromEverySender) {
  constexpr int kNodes = 5;
  constexpr int kMessages = 200;
  auto ends = make_in_process_network(kNodes);
  std::vector<std::thread> senders;
  for (int rank = 1; rank < kNodes; ++rank) {
    senders.emplace_back([&, rank] {
      for (int i = 0; i < kMessages; ++i) {
        ends[static_cast<std::size_t>(rank)]->send(0, message(static_cast<std::size_t>(i), i));
      }
    });
  }
  std::vector<int> next(kNodes, 0);
  for (int i = 0; i < (kNodes - 1) * kMessages; ++i) {
    const auto incoming = ends[0]->receive(5s);
    ASSERT_TRUE(incoming);
    int& expected = next[static_cast<std::size_t>(incoming->from)];
    EXPECT_EQ(incoming->bytes->size(), static_cast<std::size_t>(expected));
    ++expected;
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_FALSE(ends[0]->receive(0ms));
}

TEST(InProcessTransport, CountsTheBytesOfMessages) {
  auto ends = make_in_process_network(2);
  ends[0]->send(1, message(100, 1));
  ends[0]->send(1, message(23, 1));
  EXPECT_EQ(ends[0]->bytes_sent(), 123U);
  EXPECT_EQ(ends[1]->bytes_received(), 0U);
  ends[1]->receive(1s);
  EXPECT_EQ(ends[1]->bytes_received(), 100U);
}

TEST(InProcessTransport, SharesAMessageBetweenReceiversWithoutCopying) {
  auto ends = make_in_process_network(3);
  const SharedBytes bytes = message(10, 7);
  ends[0]->send(1, bytes);
  ends[0]->send(2, bytes);
  EXPECT_EQ(ends[1]->receive(1s)->bytes, bytes);
  EXPECT_EQ(ends[2]->receive(1s)->bytes, bytes);
}

TEST(InProcessTransport, WaitsNoLongerThanItIsTold) {
  auto ends = make_in_process_network(1);
  EXPECT_FALSE(ends[0]->receive(0ms));
  EXPECT_FALSE(ends[0]->receive(5ms));
}

TEST(InProcessTransport, AbortReachesThoseThatWaitAndThoseThatCome) {
  auto ends = make_in_process_network(3);
  std::string reason;
  std::thread waiting([&] {
    try {
      ends[1]->receive(60s);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAborted);
      reason = error.what();
    }
  });
  ends[0]->abort("worker 0 gave up");
  ends[2]->abort("a later reason");
  waiting.join();
  EXPECT_EQ(reason, "worker 0 gave up");
  EXPECT_THROW(ends[2]->send(0, message(1, 1)), Error);
  EXPECT_THROW(ends[2]->receive(0ms), Error);
}

TEST(InProcessTransport, RefusesRanksThatDoNotExist) {
  EXPECT_THROW(make_in_process_network(0), Error);
  auto ends = make_in_process_network(2);
  EXPECT_THROW(ends[0]->send(2, message(1, 1)), Error);
  EXPECT_THROW(ends[0]->send(-1, message(1, 1)), Error);
}

}  // namespace
}  // namespace tersewire
