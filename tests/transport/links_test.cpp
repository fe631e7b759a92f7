// When messages arrive over limited links, by a clock that the tests set: a byte takes 1 us.
#include "links.h"

#include <gtest/gtest.h>

namespace tersewire {
namespace {

using namespace std::chrono_literals;

constexpr double kRate = 8e6;
// Frames that are full, so that times are round: 100 of them are more than a turn.
constexpr std::size_t kFrame = 1448;
constexpr auto kFrameTime = 1514us;
const Links::Time kStart = Links::Time() + 1h;

class LinksTest : public testing::Test {
 protected:
  void send(int from, int to, std::size_t frames, Links::Time when = kStart) {
    links_.send(to, {.from = from, .bytes = std::make_shared<const Bytes>(kFrame * frames)}, when);
  }

  // As whoever waits for messages does: from event to event, to the last.
  std::vector<Links::Delivery> deliver_all() {
    std::vector<Links::Delivery> all;
    for (auto now = links_.next_event(); now != Links::Time::max(); now = links_.next_event()) {
      for (auto& each : links_.advance(now)) {
        EXPECT_EQ(each.message.arrived, now);
        all.push_back(std::move(each));
      }
    }
    return all;
  }

  // In frames after the start.
  static double time_of(const Links::Delivery& delivery) {
    return std::chrono::duration<double>(delivery.message.arrived - kStart) / kFrameTime;
  }

  Links links_{4, kRate};
};

TEST(BytesOnWire, CountHeadersOfFrames) {
  EXPECT_EQ(bytes_on_wire(0), 66U);
  EXPECT_EQ(bytes_on_wire(1), 67U);
  EXPECT_EQ(bytes_on_wire(1448), 1514U);
  EXPECT_EQ(bytes_on_wire(1449), 1449U + 2 * 66);
  EXPECT_EQ(bytes_on_wire(1448000), 1514000U);
}

TEST_F(LinksTest, MessagesOfAPairFollowEachOther) {
  send(0, 1, 100);
  send(0, 1, 1);
  send(0, 1, 10);
  const auto delivered = deliver_all();
  ASSERT_EQ(delivered.size(), 3U);
  EXPECT_EQ(time_of(delivered[0]), 100);
  EXPECT_EQ(time_of(delivered[1]), 101);
  EXPECT_EQ(time_of(delivered[2]), 111);
  EXPECT_EQ(delivered[0].to, 1);
  EXPECT_EQ(delivered[0].message.from, 0);
}

TEST_F(LinksTest, NothingArrivesBeforeItsTime) {
  send(0, 1, 1);
  EXPECT_TRUE(links_.advance(kStart + kFrameTime - 1ns).empty());
  EXPECT_EQ(links_.next_event(), kStart + kFrameTime);
  EXPECT_EQ(links_.advance(kStart + kFrameTime).size(), 1U);
  EXPECT_EQ(links_.next_event(), Links::Time::max());
}

TEST_F(LinksTest, APauseIsNotMadeUpFor) {
  send(0, 1, 10);
  send(0, 1, 10, kStart + 50 * kFrameTime);
  const auto delivered = deliver_all();
  EXPECT_EQ(time_of(delivered.at(1)), 60);
}

TEST_F(LinksTest, AReceiverCalledLateSeesTheSameTimes) {
  send(0, 1, 10);
  send(2, 1, 10);
  const auto delivered = links_.advance(kStart + 1h);
  EXPECT_EQ(time_of(delivered.at(0)), 10);
  EXPECT_EQ(time_of(delivered.at(1)), 20);
}

TEST_F(LinksTest, BothWaysAndOtherPairsAreIndependent) {
  send(0, 1, 100);
  send(1, 0, 100);
  send(2, 3, 100);
  send(3, 2, 100);
  const auto delivered = deliver_all();
  ASSERT_EQ(delivered.size(), 4U);
  for (const auto& each : delivered) EXPECT_EQ(time_of(each), 100);
}

TEST_F(LinksTest, SendersShareTheReceiversLink) {
  for (const int from : {0, 1, 2}) send(from, 3, 1000);
  const auto delivered = deliver_all();
  ASSERT_EQ(delivered.size(), 3U);
  EXPECT_EQ(time_of(delivered[2]), 3000);
  // In turns: they end within a few of each other.
  EXPECT_GT(time_of(delivered[0]), 2800);
}

TEST_F(LinksTest, ReceiversShareTheSendersLink) {
  for (const int to : {1, 2, 3}) send(0, to, 1000);
  const auto delivered = deliver_all();
  ASSERT_EQ(delivered.size(), 3U);
  EXPECT_EQ(time_of(delivered[2]), 3000);
  EXPECT_GT(time_of(delivered[0]), 2800);
}

// Were each sender to serve its receivers one after the other, all would meet at the last ones.
TEST_F(LinksTest, EveryoneToEveryoneKeepsAllLinksBusy) {
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (to != from) send(from, to, 1000);
    }
  }
  const auto delivered = deliver_all();
  ASSERT_EQ(delivered.size(), 12U);
  EXPECT_GE(time_of(delivered.back()), 3000);
  EXPECT_LT(time_of(delivered.back()), 3150);
}

// Node 0 is long busy with node 1 when node 2's message to node 1 comes: it need not wait for all.
TEST_F(LinksTest, ALateSenderIsServedMeanwhile) {
  send(0, 1, 1000);
  send(2, 1, 10, kStart + 100 * kFrameTime);
  const auto delivered = deliver_all();
  EXPECT_EQ(delivered.at(0).message.from, 2);
  EXPECT_LT(time_of(delivered.at(0)), 200);
  EXPECT_EQ(time_of(delivered.at(1)), 1010);
}

}  // namespace
}  // namespace tersewire
