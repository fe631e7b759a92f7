// What a node keeps of the server on the node before it.
#include "trainer/members/server_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "expect_error.h"
#include "trainer/members/node_report.h"

namespace tersewire::trainer {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostBytes = 8 << 20;
constexpr ServerRing kRing{.first = 0, .nodes = 3};
constexpr WaitLimits kLimits{.deadline = 60s, .progress_limit = 60s};

// With a server's values, of which there are more than fit into a message.
NodeCheckpoint state(std::uint64_t step, float value) {
  NodeCheckpoint node{.rank = 0, .step = step, .facts = {}, .arrays = {}};
  node.arrays["server/w"] = {{300'000}, std::vector<float>(300'000, value)};
  node.arrays["momentum/w"] = {{2}, {value, 1}};
  node.arrays["pushed/w"] = {{1}, {value}};
  node.arrays["local-momentum/w"] = {{1}, {value}};
  return node;
}

class ServerCopies : public testing::Test {
 protected:
  void SetUp() override {
    network_ = make_in_process_network(3);
    for (const auto& end : network_) {
      ends_.push_back(std::make_unique<ServerCopyEnd>(*end, kRing, false, kMostBytes));
    }
  }
  // What each node has of the one before.
  std::vector<NodeCheckpoint::Arrays> swap(std::uint64_t step) {
    std::vector<NodeCheckpoint::Arrays> copies(ends_.size());
    std::vector<std::thread> nodes;
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
      nodes.emplace_back([&, rank] {
        copies[rank] = ends_[rank]->swap(state(step, static_cast<float>(rank)), kLimits);
      });
    }
    // A node receives whatever its worker does; nobody else says anything here.
    std::vector<std::jthread> receiving;
    for (const auto& end : ends_) {
      receiving.emplace_back([&end](const std::stop_token& stop) {
        while (!stop.stop_requested()) EXPECT_FALSE(end->receive(1ms));
      });
    }
    for (std::thread& node : nodes) node.join();
    return copies;
  }
  void expect_refused(int from, const ServerPiece& piece, const Bytes& bytes = Bytes(4)) {
    network_[static_cast<std::size_t>(from)]->send(1, pack_report(piece, bytes));
    expect_error(ErrorCode::kDataLoss, "rank " + std::to_string(from),
                 [this] { ends_[1]->receive(0ms); });
  }

  std::vector<std::unique_ptr<Transport>> network_;
  std::vector<std::unique_ptr<ServerCopyEnd>> ends_;
};

TEST_F(ServerCopies, EachHasWhatIsTheServersOfTheOneBefore) {
  for (const std::uint64_t step : {3U, 6U}) {
    const auto copies = swap(step);
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
      const auto before = static_cast<float>((rank + 2) % 3);
      ASSERT_EQ(copies[rank].size(), 2U);
      EXPECT_EQ(copies[rank].at("server/w").values, std::vector<float>(300'000, before));
      EXPECT_EQ(copies[rank].at("momentum/w").values, (std::vector<float>{before, 1}));
    }
  }
}

// Nobody receives beside them, and the worker is none of them.
TEST(ServerCopiesApart, EachServerTakesThoseOfTheOneBeforeAndKeepsWhatElseComes) {
  auto network = make_in_process_network(3);
  constexpr ServerRing kServers{.first = 1, .nodes = 2};
  const auto pushed = std::make_shared<const Bytes>(7);
  std::vector<std::thread> servers;
  for (const std::size_t rank : {1U, 2U}) {
    network[0]->send(static_cast<int>(rank), pushed);
    servers.emplace_back([&, rank] {
      ServerCopyEnd end(*network[rank], kServers, true, kMostBytes);
      for (const std::uint64_t step : {3U, 6U}) {
        const auto copies = end.swap(state(step, static_cast<float>(rank)), kLimits);
        EXPECT_EQ(copies.at("server/w").values,
                  std::vector<float>(300'000, static_cast<float>(3 - rank)));
      }
      const auto passed = end.receive(0ms);
      ASSERT_TRUE(passed);
      EXPECT_EQ(passed->from, 0);
      EXPECT_EQ(passed->bytes, pushed);
      EXPECT_FALSE(end.receive(0ms));
    });
  }
  for (std::thread& server : servers) server.join();
}

TEST_F(ServerCopies, AllElsePasses) {
  const auto message = std::make_shared<const Bytes>(7);
  network_[0]->send(1, message);
  EXPECT_EQ(ends_[1]->receive(0ms).value().bytes, message);
}

TEST_F(ServerCopies, PiecesThatMakeNoSenseAreRefused) {
  expect_refused(2, {.step = 1, .total_bytes = 8});               // of no neighbour
  expect_refused(0, {.step = 1, .total_bytes = kMostBytes + 1});  // more than there is
  expect_refused(0, {.step = 1, .total_bytes = 8, .begin = 4});   // not the first
  expect_refused(0, {.step = 1, .total_bytes = 3});               // longer than all
  expect_refused(0, {.step = 1, .total_bytes = 8}, {});           // without bytes
  network_[0]->send(1, pack_report(ServerPiece{1, 8, 0}, Bytes(4)));
  EXPECT_FALSE(ends_[1]->receive(0ms));
  expect_refused(0, {.step = 1, .total_bytes = 8, .begin = 0});
  expect_refused(0, {.step = 2, .total_bytes = 8, .begin = 4});
  expect_refused(0, {.step = 1, .total_bytes = 12, .begin = 4});
  expect_refused(0, {.step = 1, .total_bytes = 8, .begin = 4}, Bytes(5));
  network_[0]->send(1, pack_report(ServerPiece{1, 8, 4}, Bytes(4)));
  EXPECT_FALSE(ends_[1]->receive(0ms));
  expect_refused(0, {.step = 1, .total_bytes = 8, .begin = 8});  // nobody asked for another yet
}

TEST_F(ServerCopies, WhoWaitsHearsWhatReceivingFailedWith) {
  expect_refused(2, {.step = 1, .total_bytes = 8});
  expect_error(ErrorCode::kDataLoss, "rank 2", [this] { ends_[1]->swap(state(1, 0), kLimits); });
}

TEST_F(ServerCopies, WhatIsOfAnotherStepIsRefused) {
  std::thread other([this] {
    expect_error(ErrorCode::kUnavailable, "rank 2",
                 [this] { ends_[0]->swap(state(2, 0), kLimits); });
  });
  network_[2].reset();
  other.join();
  while (ends_[1]->receive(0ms)) ADD_FAILURE() << "a piece was passed on";
  expect_error(ErrorCode::kDataLoss, "for step 2 is not its server's state after step 3",
               [this] { ends_[1]->swap(state(3, 1), kLimits); });
}

TEST_F(ServerCopies, WhatIsNoStateOfAServerIsRefused) {
  const auto text = [](const char* name, std::uint64_t elems, std::size_t value_bytes) {
    Bytes bytes(1, std::byte{0});
    const std::uint64_t header[] = {std::strlen(name), elems};
    const ByteView numbers = std::as_bytes(std::span(header));
    bytes.insert(bytes.end(), numbers.begin(), numbers.end());
    const ByteView letters = std::as_bytes(std::span(name, std::strlen(name)));
    bytes.insert(bytes.end(), letters.begin(), letters.end());
    bytes.resize(bytes.size() + value_bytes, std::byte{0});
    return bytes;
  };
  const auto copies_of = [this](const Bytes& bytes) {
    network_[0]->send(1, pack_report(ServerPiece{1, bytes.size(), 0}, bytes));
    EXPECT_FALSE(ends_[1]->receive(0ms));
    return ends_[1]->swap(state(1, 0), kLimits);
  };
  EXPECT_EQ(copies_of(Bytes(1, std::byte{0})).size(), 0U);
  EXPECT_EQ(copies_of(text("server/w", 2, 8)).at("server/w").values, std::vector<float>(2));
  for (const Bytes& bytes :
       {Bytes(5), text("pushed/w", 2, 8), text("server/w", 2, 7), text("server/w", 1, 8),
        text("server/w", ~std::uint64_t{0}, 8), text("server/w", 1ULL << 62, 0)}) {
    expect_error(ErrorCode::kDataLoss, "rank 0", [&] { copies_of(bytes); });
  }
}

}  // namespace
}  // namespace tersewire::trainer
