// Lanes keep what transports promise, whatever comes for them, and what ranks tell each other in
// one.
#include "python/shared_end.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "python/rank_calls.h"
#include "transport_cases.h"

namespace tersewire::python {
namespace {

using transport_cases::message;
using transport_cases::pattern;
using transport_cases::same;
using Ends = std::vector<std::unique_ptr<Transport>>;

constexpr std::size_t kLongest = std::size_t{1} << 30;

// So many lanes of each rank of a network of threads, by lane and rank.
std::vector<Ends> lanes_of(int ranks, int lanes, std::size_t longest = kLongest) {
  std::vector<Ends> made(static_cast<std::size_t>(lanes));
  for (auto& network : make_in_process_network(ranks)) {
    const auto end = std::make_shared<SharedEnd>(std::move(network));
    for (Ends& lane : made) lane.push_back(SharedEnd::open(end, longest));
  }
  return made;
}

// Rank 0's lane, and rank 1's bare end of the network.
struct Bare {
  explicit Bare(std::size_t longest = kLongest) {
    auto ends = make_in_process_network(2);
    lane = SharedEnd::open(std::make_shared<SharedEnd>(std::move(ends[0])), longest);
    peer = std::move(ends[1]);
  }
  void send(const std::vector<unsigned>& bytes) {
    Bytes made;
    for (const unsigned byte : bytes) made.push_back(static_cast<std::byte>(byte));
    peer->send(0, std::make_shared<const Bytes>(std::move(made)));
  }

  std::unique_ptr<Transport> peer;
  std::unique_ptr<Transport> lane;
};

void expect_error(ErrorCode code, const std::string& words, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

class LaneCases : public testing::TestWithParam<TransportCase> {};

TEST_P(LaneCases, ForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const auto lanes = lanes_of(ranks, 3);
    run_on_all(lanes[1], GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(SharedEnd, LaneCases, testing::ValuesIn(kTransportCases), case_name);

TEST(SharedEnd, KeepsLanesApart) {
  const auto lanes = lanes_of(2, 2);
  lanes[0][0]->send(1, message(3, 1));
  lanes[1][0]->send(1, message(4, 2));
  EXPECT_TRUE(same(lanes[1][1]->receive(30s)->bytes, message(4, 2)));
  EXPECT_TRUE(same(lanes[0][1]->receive(30s)->bytes, message(3, 1)));
  EXPECT_FALSE(lanes[0][1]->receive(0ms));
}

TEST(SharedEnd, SaysWhoHasLeftALane) {
  auto lanes = lanes_of(3, 2);
  lanes[1][2]->send(0, message(5, 1));
  lanes[1][2].reset();
  EXPECT_TRUE(same(lanes[1][0]->receive(30s)->bytes, message(5, 1)));
  const WaitLimits limits{.deadline = 30s, .progress_limit = 30s};
  const auto needs_rank_2 = [](int rank) { return rank == 2; };
  expect_error(ErrorCode::kUnavailable, "rank 2 has left the job, and rank 0 waits for it",
               [&] { receive_within(*lanes[1][0], limits, "it", needs_rank_2); });
  expect_error(ErrorCode::kUnavailable, "rank 2 has left the job, and rank 0 goes on",
               [&] { lanes[1][0]->send(2, message(1, 1)); });
  EXPECT_FALSE(lanes[1][0]->peer(1).gone);
  EXPECT_FALSE(lanes[0][0]->peer(2).gone);
}

TEST(SharedEnd, DropsWhatIsLateForALaneThatWasLeft) {
  auto ends = make_in_process_network(2);
  const auto end = std::make_shared<SharedEnd>(std::move(ends[0]));
  SharedEnd::open(end, kLongest).reset();
  const auto lane = SharedEnd::open(end, kLongest);
  for (const std::byte number : {std::byte{0}, std::byte{1}}) {
    Bytes bytes(8 + 5, std::byte{0});
    bytes[0] = number;
    ends[1]->send(0, std::make_shared<const Bytes>(std::move(bytes)));
  }
  EXPECT_EQ(lane->receive(30s)->bytes->size(), 5U);
  EXPECT_FALSE(lane->receive(0ms));
}

TEST(SharedEnd, EndsTheJobForWhatIsNoMessage) {
  const std::vector<std::pair<std::vector<unsigned>, std::string>> wrong{
      {{}, "not a message of a lane"},
      {{0, 0, 0, 0, 0, 0, 0}, "not a message of a lane"},
      {{0, 0, 0, 0, 2, 0, 0, 0}, "not a message of a lane"},
      {{0, 0, 0, 0, 0, 0, 0, 1}, "not a message of a lane"},
      {{0, 0, 0, 0, 1, 0, 0, 0, 7}, "not a message of a lane"},
      {{1, 0, 0, 0, 0, 0, 0, 0}, "rank 1 uses lane 1, and rank 0 has opened 1"},
      {{255, 255, 255, 255, 0, 0, 0, 0}, "rank 1 uses lane 4294967295"},
      {{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, "no message of this job has more than 2"}};
  for (const auto& [bytes, words] : wrong) {
    SCOPED_TRACE(words);
    Bare bare(2);
    bare.send({0, 0, 0, 0, 0, 0, 0, 0, 1, 2});
    EXPECT_EQ(bare.lane->receive(30s)->bytes->size(), 2U);
    bare.send(bytes);
    expect_error(ErrorCode::kAborted, words, [&] { bare.peer->receive(30s); });
    expect_error(ErrorCode::kAborted, words, [&] { bare.lane->receive(30s); });
    expect_error(ErrorCode::kAborted, words, [&] { bare.lane->send(1, message(1, 1)); });
  }
}

// What a lane does not take stays with who sent it, and in order.
TEST(SharedEnd, HoldsNoMoreThanTheBoundForALane) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Bare bare(kMiB);
  for (int i = 0; i < 100; ++i) {
    Bytes bytes(8 + kMiB, std::byte{0});
    bytes[8] = static_cast<std::byte>(i);
    bare.peer->send(0, std::make_shared<const Bytes>(std::move(bytes)));
  }
  while (bare.peer->peer(0).waiting > 40 * kMiB) std::this_thread::sleep_for(1ms);
  for (int look = 0; look < 20; ++look) {
    std::this_thread::sleep_for(5ms);
    EXPECT_GE(bare.peer->peer(0).waiting, 34 * kMiB);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(bare.lane->receive(30s)->bytes->front(), static_cast<std::byte>(i));
  }
}

const WaitLimits kLimits{.deadline = 30s, .progress_limit = 30s};

// What each rank does, a thread each, over lanes for calls.
void on_ranks(int ranks, const std::function<void(RankCalls& calls, int rank)>& does) {
  const auto lanes = lanes_of(ranks, 1, RankCalls::kLongestMessage);
  std::vector<std::thread> threads;
  for (const auto& lane : lanes.front()) {
    threads.emplace_back([&] {
      RankCalls calls(*lane, kLimits, "the hub");
      does(calls, lane->rank());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankCalls, GatherWhatEveryRankSays) {
  for (const int ranks : {1, 2, 3, 5}) {
    on_ranks(ranks, [&](RankCalls& calls, int rank) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, RankCalls::kMostBytes}) {
        const auto said = [&](int of) {
          return pattern(bytes - static_cast<std::size_t>(of > 0 && bytes > 0), 7U * bytes + of);
        };
        const std::vector<Bytes> told = calls.gather(*said(rank));
        ASSERT_EQ(told.size(), static_cast<std::size_t>(ranks));
        for (int of = 0; of < ranks; ++of) {
          EXPECT_EQ(told[static_cast<std::size_t>(of)], *said(of));
        }
      }
    });
  }
}

TEST(RankCalls, BroadcastWhatOneHas) {
  for (const int ranks : {1, 2, 3, 5}) {
    on_ranks(ranks, [&](RankCalls& calls, int rank) {
      for (int root = 0; root < ranks; ++root) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, RankCalls::kMostBytes,
                                        2 * RankCalls::kMostBytes + 12345}) {
          const SharedBytes expected = pattern(bytes, 3U * bytes + root);
          Bytes data = rank == root ? *expected : Bytes(bytes, std::byte{0});
          calls.broadcast(root, data);
          EXPECT_EQ(data, *expected);
        }
      }
    });
  }
}

TEST(RankCalls, RefuseWhatMakesNoSense) {
  on_ranks(2, [](RankCalls& calls, int /*rank*/) {
    expect_error(ErrorCode::kInvalidArgument, "at most 1048576 are allowed",
                 [&] { calls.gather(*message(RankCalls::kMostBytes + 1, 1)); });
    expect_error(ErrorCode::kInvalidArgument, "there is no rank 2 in a job of 2",
                 [&] { calls.broadcast(2, {}); });
    EXPECT_EQ(calls.gather({}).size(), 2U);
  });
}

TEST(RankCalls, FindRanksWhoseScriptsDiffer) {
  on_ranks(3, [](RankCalls& calls, int rank) {
    std::byte data{};
    try {
      if (rank == 2) {
        calls.broadcast(0, {&data, 1});
      } else {
        calls.gather({});
      }
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("rank 2 made another call than rank 0"), 0U)
          << error.what();
    }
  });
}

TEST(RankCalls, EndTheJobForAPieceOfAnotherLength) {
  for (const std::size_t bytes : {9, 11}) {
    Bare bare(RankCalls::kLongestMessage);
    std::vector<unsigned> piece(8 + 8 + bytes, 0);
    piece[8] = 1;   // the first call
    piece[12] = 2;  // a broadcast
    bare.send(piece);
    RankCalls calls(*bare.lane, kLimits, "the hub");
    std::array<std::byte, 10> data{};
    expect_error(ErrorCode::kDataLoss, "where 10 were expected", [&] { calls.broadcast(1, data); });
    expect_error(ErrorCode::kAborted, "where 10 were expected", [&] { bare.peer->receive(30s); });
  }
}

// Nothing is kept of what it says beside that.
TEST(RankCalls, EndTheJobForARankThatRunsAhead) {
  const auto lanes = lanes_of(3, 1, RankCalls::kLongestMessage);
  for (int i = 0; i < 2; ++i) lanes[0][2]->send(0, pattern(RankCalls::kLongestMessage, 1));
  RankCalls calls(*lanes[0][0], kLimits, "the hub");
  expect_error(ErrorCode::kFailedPrecondition, "rank 2 made another call than rank 0",
               [&] { calls.gather({}); });
  expect_error(ErrorCode::kAborted, "rank 2 made another call", [&] { lanes[0][1]->receive(30s); });
}

// Each in its turn, in calls one after the other.
TEST(RankCalls, WaitForRanksThatAreACallBehind) {
  on_ranks(4, [&](RankCalls& calls, int rank) {
    for (int round = 0; round < 8; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == round % 4 ? 20 : 0));
      Bytes data(3 * RankCalls::kMostBytes, static_cast<std::byte>(rank == round % 4));
      calls.broadcast(round % 4, data);
      EXPECT_EQ(data.back(), std::byte{1});
      EXPECT_EQ(calls.gather(*message(3, 1)).size(), 4U);
      calls.broadcast((round + 1) % 4, data);
    }
  });
}

TEST(RankCalls, NameWhoIsGone) {
  auto lanes = lanes_of(3, 1, RankCalls::kLongestMessage);
  lanes[0][1].reset();
  RankCalls calls(*lanes[0][0], kLimits, "the hub at example:7100");
  expect_error(ErrorCode::kUnavailable, "what rank 1 says by way of the hub at example:7100",
               [&] { calls.gather({}); });
}

}  // namespace
}  // namespace tersewire::python
