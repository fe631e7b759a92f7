// When messages arrive over limited links, by a clock that the tests set: a byte takes 1 us.
#include "links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

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

  std::vector<Links::Delivery> deliver_all() { return deliver_all(links_); }
  // As whoever waits for messages does: from event to event, to the last.
  static std::vector<Links::Delivery> deliver_all(Links& links) {
    std::vector<Links::Delivery> all;
    for (auto now = links.next_event(); now != Links::Time::max(); now = links.next_event()) {
      for (auto& each : links.advance(now)) {
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

  Links links_{4, {.bits_per_second = kRate}};
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

// ---- Delay, jitter and loss.

using std::chrono::duration;

double seconds(std::chrono::nanoseconds time) { return duration<double>(time).count(); }

Incoming of_frames(int from, std::size_t frames) {
  return {.from = from, .bytes = std::make_shared<const Bytes>(kFrame * frames)};
}

TEST_F(LinksTest, ADelayIsThatOfTwoLinksAndTakesNoRate) {
  Links links(4, {.bits_per_second = kRate, .delay_seconds = 0.04});
  links.send(1, of_frames(0, 100), kStart);
  links.send(1, of_frames(0, 100), kStart);
  links.send(0, of_frames(1, 1), kStart);
  const auto delivered = deliver_all(links);
  ASSERT_EQ(delivered.size(), 3U);
  EXPECT_EQ(delivered[0].message.arrived, kStart + kFrameTime + 80ms);
  EXPECT_EQ(delivered[1].message.arrived, kStart + 100 * kFrameTime + 80ms);
  EXPECT_EQ(delivered[2].message.arrived, kStart + 200 * kFrameTime + 80ms);
}

TEST_F(LinksTest, ADelayNeedsNoRate) {
  Links links(2, {.delay_seconds = 0.04});
  links.send(1, of_frames(0, 100000), kStart);
  links.send(1, of_frames(0, 1), kStart + 1us);
  const auto delivered = deliver_all(links);
  ASSERT_EQ(delivered.size(), 2U);
  EXPECT_EQ(delivered[0].message.arrived, kStart + 80ms);
  EXPECT_EQ(delivered[1].message.arrived, kStart + 80ms + 1us);
}

TEST_F(LinksTest, MessagesOfAPairStayInOrder) {
  Links links(3, {.bits_per_second = 1e9,
                  .delay_seconds = 0.01,
                  .jitter_seconds = 0.01,
                  .loss = 0.1,
                  .seed = 3});
  for (std::size_t i = 0; i < 200; ++i) {
    for (const int from : {0, 1}) {
      for (const int to : {0, 1, 2}) {
        if (to != from) links.send(to, of_frames(from, i + 1), kStart + i * 1ms);
      }
    }
  }
  std::map<std::pair<int, int>, std::size_t> frames;
  Links::Time last;
  for (const auto& each : deliver_all(links)) {
    const std::size_t number = ++frames[{each.message.from, each.to}];
    EXPECT_EQ(each.message.bytes->size(), kFrame * number);
    EXPECT_GE(each.message.arrived, last);
    last = each.message.arrived;
  }
  EXPECT_EQ(frames.size(), 4U);
  for (const auto& [pair, count] : frames) EXPECT_EQ(count, 200U);
}

// What other pairs send, and when, changes nothing about what a pair's messages draw.
TEST_F(LinksTest, TheSameMessagesMeetTheSameFate) {
  const ModelledLinks conditions{
      .delay_seconds = 0.02, .jitter_seconds = 0.01, .loss = 0.02, .seed = 9};
  const auto arrivals = [&](bool others) {
    Links links(3, conditions);
    std::vector<Links::Time> times;
    for (int i = 0; i < 50; ++i) {
      const auto now = kStart + i * 1h;
      if (others) links.send(1, of_frames(2, 7), now);
      links.send(1, of_frames(0, 7), now);
      if (others) links.send(2, of_frames(0, 3), now);
      for (const auto& each : deliver_all(links)) {
        if (each.message.from == 0 && each.to == 1) times.push_back(each.message.arrived);
      }
    }
    return times;
  };
  EXPECT_EQ(arrivals(false), arrivals(true));
}

TEST(LinkFaults, AreTheSameForTheSameMessageAndDifferOtherwise) {
  const ModelledLinks links{.delay_seconds = 0.02, .jitter_seconds = 0.01, .seed = 1};
  ModelledLinks reseeded = links;
  reseeded.seed = 2;
  const LinkFaults::Message message{.from = 3, .to = 1, .number = 7, .frames = 1};
  const auto drawn = LinkFaults(links).of(message).delay;
  EXPECT_EQ(LinkFaults(links).of(message).delay, drawn);
  EXPECT_NE(LinkFaults(reseeded).of(message).delay, drawn);
  for (const auto& other : {LinkFaults::Message{.from = 1, .to = 3, .number = 7},
                            {.from = 3, .to = 2, .number = 7},
                            {.from = 3, .to = 1, .number = 8}}) {
    EXPECT_NE(LinkFaults(links).of(other).delay, drawn);
  }
}

TEST(LinkFaults, WithoutAnyThereAreNone) {
  const LinkFaults none({.bits_per_second = kRate, .seed = 5});
  EXPECT_FALSE(none.any());
  EXPECT_EQ(none.of({.frames = 100}).delay, 0ns);
  EXPECT_EQ(none.of({.frames = 100}).held, 0ns);
}

// Of one frame: two links' draws, each alike likely from 15 to 25 ms. 20,000 of them have a mean
// within 0.1 ms of 40 ms, which is 24 of its deviations, and a variance of twice 10^2 / 12.
TEST(LinkFaults, JitterIsSpreadEvenlyAboutTheDelay) {
  const LinkFaults faults({.delay_seconds = 0.02, .jitter_seconds = 0.005, .seed = 4});
  constexpr int kMessages = 20000;
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const double late = 1e3 * seconds(faults.of({.from = 0, .to = 1, .number = i}).delay);
    EXPECT_GE(late, 30);
    EXPECT_LE(late, 50);
    sum += late;
    squares += (late - 40) * (late - 40);
  }
  EXPECT_NEAR(sum / kMessages, 40, 0.1);
  EXPECT_NEAR(squares / kMessages, 100.0 / 6, 0.8);
}

TEST(LinkFaults, NoDelayIsBelowNothing) {
  const LinkFaults faults({.delay_seconds = 0.001, .jitter_seconds = 0.01});
  bool at_once = false;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto late = faults.of({.number = i}).delay;
    EXPECT_GE(late, 0ns);
    EXPECT_LE(late, 22ms);
    at_once = at_once || late == 0ns;
  }
  EXPECT_TRUE(at_once);
}

// The last frame waits for those before it, most of all for those right before it.
TEST(LinkFaults, ALongMessageIsAsLateAsItsFramesTogether) {
  const LinkFaults faults({.delay_seconds = 0.02, .jitter_seconds = 0.005});
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto late = faults.of({.number = i, .frames = 1000}).delay;
    EXPECT_GT(late, 48ms);
    EXPECT_LE(late, 50ms);
  }
  const LinkFaults slow({.bits_per_second = 8 * 1514, .jitter_seconds = 0.005});
  for (std::uint64_t i = 0; i < 100; ++i) {  // a frame a second: none waits for another
    EXPECT_LE(slow.of({.number = i, .frames = 10}).delay, 10ms);
  }
}

// Of 10^6 frames q = 1 - 0.99^2 are lost the first time, and q of those again: q / (1 - q) losses a
// frame, with a deviation of 0.7 %. A round trip takes 80 ms.
TEST(LinkFaults, LostFramesHoldTheirStream) {
  const double q = 1 - 0.99 * 0.99;
  const double losses = 1e6 * q / (1 - q);
  const auto held = [](const ModelledLinks& links, std::uint64_t number, std::uint64_t frames) {
    return seconds(LinkFaults(links).of({.number = number, .frames = frames}).held);
  };
  // Without a rate it is Reno's alone that counts.
  const ModelledLinks far{.delay_seconds = 0.02, .loss = 0.01, .seed = 6};
  EXPECT_NEAR(held(far, 0, 1000000) / (losses * 0.08 * std::sqrt(2 / (3 * q))), 1, 0.03);
  // At 1 Mbit/s, 1 / q frames take 0.6 s, longer than Reno's 0.46 s: a round trip remains.
  ModelledLinks slow = far;
  slow.bits_per_second = 1e6;
  EXPECT_NEAR(held(slow, 0, 1000000) / (losses * 0.08), 1, 0.03);
  // Nobody acknowledges what comes behind one of the last three: the timer, of 80 + 200 ms.
  double last = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) last += held(slow, i, 3);
  EXPECT_NEAR(last / (0.3 * losses * 0.28), 1, 0.05);
  // Where there is no delay, only the timer takes time.
  EXPECT_LE(held({.loss = 0.5}, 0, 1000), 0.2 * 60);
}

TEST_F(LinksTest, WhatComesBehindALostFrameWaits) {
  const ModelledLinks conditions{.bits_per_second = kRate, .delay_seconds = 0.01, .loss = 0.3};
  const LinkFaults faults(conditions);
  Links links(2, conditions);
  auto expected = kStart;
  for (std::uint64_t i = 0; i < 20; ++i) {
    links.send(1, of_frames(0, 1), kStart);
    const auto carried = kStart + static_cast<int>(i + 1) * kFrameTime + 20ms;
    expected = std::max(expected, Links::Time(carried)) +
               faults.of({.from = 0, .to = 1, .number = i}).held;
  }
  EXPECT_EQ(deliver_all(links).back().message.arrived, expected);
  EXPECT_GT(expected, kStart + 1s);
}

}  // namespace
}  // namespace tersewire
