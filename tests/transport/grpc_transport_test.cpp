// The transport grpc over loopback: threads as ranks, a hub, and a proxy that cuts connections at
// every kind of place.
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "both_ways.h"
#include "cutting_proxy.h"
#include "expect_error.h"
#include "grpc_batch.h"
#include "grpc_pair.h"
#include "grpc_record.h"
#include "network_ends.h"
#include "tersewire/grpc_members.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using test::end_all;
using transport_cases::message;
using transport_cases::pattern;
using transport_cases::same;

int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

// Ends by rank; each joins through its own address.
std::vector<std::unique_ptr<Transport>> join_all(const std::vector<std::string>& addresses,
                                                 const WaitLimits& limits = {.deadline = 30s}) {
  const int ranks = static_cast<int>(addresses.size());
  return test::join_all(ranks, [&](int rank) {
    return join_grpc_network(addresses[static_cast<std::size_t>(rank)], rank, ranks, {}, limits);
  });
}

// The other end hears whole batches alone, and dials anew after ten seconds without any.
TEST(GrpcSlowLinks, AreNotTakenForDeadOnes) {
  GrpcHub hub("127.0.0.1:0", 2);
  CuttingProxy slow(port_of(hub.address()));
  auto ends = join_all({hub.address(), slow.address()}, {.deadline = 120s});
  slow.slow_down(40'000);
  const SharedBytes message = pattern(700'000, 1);
  ends[0]->send(1, message);
  const auto incoming = ends[1]->receive(60s);
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(same(incoming->bytes, message));
  EXPECT_EQ(slow.connections(), 1);
  slow.slow_down(0);
  end_all(ends);
}

TEST(GrpcBatches, AreAsLongAsTheirLinkIsFast) {
  BatchLimit limit;
  BatchLimit::Clock::time_point now{};
  const auto write = [&](std::size_t bytes, std::chrono::milliseconds took) {
    limit.begins(bytes, now);
    limit.ends(now += took);
    return limit.bytes();
  };
  EXPECT_EQ(limit.bytes(), kLeastBatchBytes);
  EXPECT_EQ(write(kLeastBatchBytes, 900ms), kLeastBatchBytes);
  EXPECT_EQ(write(kLeastBatchBytes, 10ms), 2 * kLeastBatchBytes);
  EXPECT_EQ(write(100, 10ms), 2 * kLeastBatchBytes);  // says nothing of the link
  EXPECT_EQ(write(2 * kLeastBatchBytes, 200ms), 2 * kLeastBatchBytes);
  for (int i = 0; i < 20; ++i) write(kMostBatchBytes, 1ms);
  EXPECT_EQ(limit.bytes(), kMostBatchBytes);
  EXPECT_EQ(write(kMostBatchBytes, 600ms), kMostBatchBytes / 2);
}

class GrpcCases : public testing::TestWithParam<TransportCase> {};

TEST_P(GrpcCases, ForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const GrpcHub hub("127.0.0.1:0", ranks);
    auto ends = join_all(std::vector(static_cast<std::size_t>(ranks), hub.address()));
    run_on_all(ends, GetParam());
    end_all(ends);
    EXPECT_TRUE(hub.wait(30s));
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, GrpcCases, testing::ValuesIn(kTransportCases), case_name);

// Two ranks, each behind a proxy of its own.
struct Cuttable {
  explicit Cuttable(const WaitLimits& limits = {.deadline = 60s})
      : ends(join_all({proxies[0].address(), proxies[1].address()}, limits)) {}
  ~Cuttable() { end_all(ends); }

  GrpcHub hub{"127.0.0.1:0", 2};
  std::array<CuttingProxy, 2> proxies{CuttingProxy(port_of(hub.address())),
                                      CuttingProxy(port_of(hub.address()))};
  std::vector<std::unique_ptr<Transport>> ends;
};

TEST(GrpcReconnection, LosesAndRepeatsNothingWhereverItIsCut) {
  Cuttable network;
  std::uint64_t cut = 1;
  test::exchange_both_ways(network.ends, 400, 300000, [&](int sent) {
    if (sent % 20 != 10) return;
    // The connections that follow are cut at places of all sizes: in a handshake, a head, a chunk.
    CuttingProxy& proxy = network.proxies.at(static_cast<std::size_t>(sent / 20 % 2));
    proxy.cut_next_after(cut);
    cut = cut * 5 / 2 + 7;
    if (cut > 3000000) cut = 1;
    proxy.cut();
  });
  EXPECT_GT(network.proxies[0].connections(), 8);
  EXPECT_GT(network.proxies[1].connections(), 8);
}

TEST(GrpcReconnection, BothMayBreakAtOnce) {
  Cuttable network;
  test::exchange_both_ways(network.ends, 200, 2000000, [&](int sent) {
    if (sent % 40 != 20) return;
    for (CuttingProxy& proxy : network.proxies) proxy.cut();
  });
}

TEST(GrpcReconnection, GoesOnWhenTheNetworkIsThereAgain) {
  Cuttable network;
  CuttingProxy& proxy = network.proxies[0];
  proxy.refuse(true);
  proxy.cut();
  network.ends[0]->send(1, pattern(100000, 1));
  network.ends[1]->send(0, pattern(200000, 2));
  EXPECT_FALSE(network.ends[1]->receive(700ms));
  proxy.refuse(false);
  const auto first = network.ends[1]->receive(60s);
  const auto second = network.ends[0]->receive(60s);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(same(first->bytes, pattern(100000, 1)));
  EXPECT_TRUE(same(second->bytes, pattern(200000, 2)));
}

TEST(GrpcReconnection, EndsTheJobWhereTheHubStaysAway) {
  Cuttable network({.deadline = 2s});
  for (CuttingProxy& proxy : network.proxies) {
    proxy.refuse(true);
    proxy.cut();
  }
  expect_error(ErrorCode::kAborted, "has lost the hub at", [&] { network.ends[0]->receive(30s); });
  expect_error(ErrorCode::kAborted, "has lost the hub at", [&] { network.ends[1]->receive(30s); });
}

TEST(GrpcReconnection, AbortIsToldWhenTheNetworkIsThereAgain) {
  Cuttable network;
  network.proxies[0].refuse(true);
  network.proxies[0].cut();
  network.ends[0]->abort("rank 0 gave up");
  EXPECT_FALSE(network.ends[1]->receive(300ms));
  network.proxies[0].refuse(false);
  expect_error(ErrorCode::kAborted, "rank 0 gave up", [&] { network.ends[1]->receive(30s); });
}

// What the hub has had of a rank's messages.
std::uint64_t came_from(const GrpcHub& hub, std::size_t rank) {
  return hub.status().members.at(rank).traffic.sent_bytes;
}

TEST(GrpcCopies, WhatGoesToAllCrossesItsSendersLinkOnce) {
  constexpr int kRanks = 5;
  GrpcHub hub("127.0.0.1:0", kRanks);
  auto ends = join_all(std::vector<std::string>(kRanks, hub.address()));
  std::uint64_t once = 0;
  for (int i = 0; i < 60; ++i) {
    const std::size_t bytes = i % 20 == 0 ? 3000000 : i % 2 == 0 ? 100000 : 1;
    const SharedBytes sent = pattern(bytes, bytes);
    for (int to = 1; to < kRanks; ++to) ends[0]->send(to, sent);
    for (std::size_t rank = 1; rank < kRanks; ++rank) {
      const auto incoming = ends[rank]->receive(30s);
      ASSERT_TRUE(incoming);
      EXPECT_TRUE(same(incoming->bytes, sent)) << rank;
    }
    once += bytes;
  }
  // It would be 4 times as much. What the sending thread finds before it is there for all ranks, it
  // sends more than once.
  EXPECT_LT(came_from(hub, 0), 5 * once / 2);
  end_all(ends);
}

TEST(GrpcCopies, OnlyOfWhatIsTheSameMessage) {
  GrpcHub hub("127.0.0.1:0", 3);
  auto ends = join_all(std::vector<std::string>(3, hub.address()));
  const SharedBytes shared = pattern(500000, 1);
  for (int i = 0; i < 20; ++i) {
    ends[0]->send(1, shared);
    ends[0]->send(2, i % 3 == 0 ? pattern(500000, 2) : shared);
    if (i % 4 == 0) ends[0]->send(1, pattern(static_cast<std::size_t>(i), 3));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(same(ends[1]->receive(30s).value().bytes, shared)) << i;
    EXPECT_TRUE(same(ends[2]->receive(30s).value().bytes, pattern(500000, i % 3 == 0 ? 2 : 1)))
        << i;
    if (i % 4 != 0) continue;
    EXPECT_TRUE(same(ends[1]->receive(30s).value().bytes, pattern(static_cast<std::size_t>(i), 3)));
  }
  end_all(ends);
}

TEST(GrpcCopies, NothingIsLostOrRepeatedWhereverAConnectionIsCut) {
  GrpcHub hub("127.0.0.1:0", 3);
  std::array<CuttingProxy, 3> proxies{CuttingProxy(port_of(hub.address())),
                                      CuttingProxy(port_of(hub.address())),
                                      CuttingProxy(port_of(hub.address()))};
  auto ends = join_all({proxies[0].address(), proxies[1].address(), proxies[2].address()},
                       {.deadline = 60s});
  const auto sent = [](int i) {
    return pattern(static_cast<std::size_t>(i) * 7919 * 13 % (i % 8 == 0 ? 2000000 : 30000),
                   static_cast<std::uint64_t>(i));
  };
  std::uint64_t cut = 1;
  for (int i = 0; i < 120; ++i) {
    const SharedBytes message = sent(i);
    ends[0]->send(1, message);
    ends[0]->send(2, message);
    if (i % 10 == 5) {
      CuttingProxy& proxy = proxies.at(static_cast<std::size_t>(i / 10 % 3));
      proxy.cut_next_after(cut);
      cut = cut * 5 / 2 + 7;
      proxy.cut();
    }
    if (i < 8) continue;
    for (const std::size_t rank : {1, 2}) {
      const auto incoming = ends[rank]->receive(60s);
      ASSERT_TRUE(incoming);
      EXPECT_TRUE(same(incoming->bytes, sent(i - 8))) << i;
    }
  }
  end_all(ends);
}

TEST(GrpcCopies, StandForARecordWithTheSameDataAlone) {
  const Bytes data(100, std::byte{7});
  for (const bool secure : {false, true}) {
    const RecordHead head{.from = 0, .to = 2, .position = 5, .total = 200, .offset = 5};
    Bytes batch;
    const RecordHead sealed_head = sealed_copy(head, data, secure);
    batch.resize(sizeof(sealed_head));
    std::memcpy(batch.data(), &sealed_head, sizeof(sealed_head));
    ByteView rest = batch;
    const Record copy = take_record(rest, secure);
    EXPECT_TRUE(rest.empty());
    const Record whole = copied(copy, data, secure);
    EXPECT_EQ(whole.head.kind, RecordKind::kData);
    EXPECT_EQ(whole.head.to, 2U);
    EXPECT_EQ(whole.data.size(), 100U);
    EXPECT_THROW(copied(copy, {}, secure), Error);
    EXPECT_THROW(copied(copy, ByteView(data).first(99), secure), Error);
    Record wrong = copy;
    wrong.head.checksum ^= 1;
    EXPECT_THROW(copied(wrong, data, secure), Error);
    wrong = copy;
    wrong.head.bytes = 0;
    EXPECT_THROW(copied(wrong, {}, secure), Error);
  }
  const Bytes other(100, std::byte{8});
  Record copy{.head = sealed_copy({.from = 0, .to = 2}, data, false), .data = {}};
  EXPECT_THROW(copied(copy, other, false), Error);
}

// What a peer does not take is held where it was sent, and the hub has no more than a window of it.
TEST(GrpcTransport, HoldsBackWhatIsNotTaken) {
  const GrpcHub hub("127.0.0.1:0", 2);
  auto ends = join_all({hub.address(), hub.address()});
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  for (int i = 0; i < 40; ++i) ends[0]->send(1, message(kBytes, i));
  while (came_from(hub, 0) <= kBytes) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(ends[0]->peer(1).waiting, 40 * kBytes);
  EXPECT_LE(came_from(hub, 0), kWindowBytes + 2 * kBytes);
  for (int i = 0; i < 40; ++i) {
    const auto incoming = ends[1]->receive(30s);
    ASSERT_TRUE(incoming);
    EXPECT_TRUE(same(incoming->bytes, message(kBytes, i)));
  }
  while (ends[0]->peer(1).waiting > 0) std::this_thread::sleep_for(1ms);
  end_all(ends);
}

TEST(GrpcTransport, DeliversWhatWasSentBeforeItsSenderLeft) {
  const GrpcHub hub("127.0.0.1:0", 2);
  auto ends = join_all({hub.address(), hub.address()});
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  ends[0]->send(1, message(kBytes, 5));
  auto leaving = std::async(std::launch::async, [&] { ends[0].reset(); });
  const auto incoming = ends[1]->receive(30s);
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(same(incoming->bytes, message(kBytes, 5)));
  leaving.get();
  while (!ends[1]->peer(0).gone) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(ends[1]->receive(0ms));
  expect_error(ErrorCode::kUnavailable, "rank 0 has left",
               [&] { ends[1]->send(0, message(1, 1)); });
}

TEST(GrpcTransport, SaysThatItsNodeIsAlive) {
  const GrpcHub hub("127.0.0.1:0", 2);
  auto ends = join_all({hub.address(), hub.address()});
  const auto first = ends[0]->peer(1).heard;
  while (ends[0]->peer(1).heard <= first) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(ends[0]->receive(0ms));
  end_all(ends);
}

TEST(GrpcTransport, TakesNobodyForDeadBecauseTheHubIs) {
  auto hub = std::make_unique<GrpcHub>("127.0.0.1:0", 2);
  auto ends = join_all({hub->address(), hub->address()});
  hub.reset();
  const auto first = ends[0]->peer(1).heard;
  while (ends[0]->peer(1).heard <= first + 1s) std::this_thread::sleep_for(10ms);
  end_all(ends);
}

TEST(GrpcTransport, RefusesAMessageAboveTheLongest) {
  const GrpcHub hub("127.0.0.1:0", 2);
  auto ends = join_all({hub.address(), hub.address()});
  ends[1]->expect_at_most(100);
  ends[0]->send(1, message(100, 1));
  EXPECT_TRUE(ends[1]->receive(30s));
  ends[0]->send(1, message(101, 1));
  expect_error(ErrorCode::kAborted, "from rank 0: it announces 101 bytes",
               [&] { ends[1]->receive(30s); });
  expect_error(ErrorCode::kAborted, "from rank 0: it announces 101 bytes",
               [&] { ends[0]->receive(30s); });
  end_all(ends);
}

TEST(GrpcTransport, SaysWhoIsMissing) {
  const GrpcHub hub("127.0.0.1:0", 3);
  expect_error(ErrorCode::kDeadlineExceeded, "rank 0 has waited 1 s at the hub for rank 1, 2",
               [&] { join_grpc_network(hub.address(), 0, 3, {}, {.deadline = 1s}); });
}

TEST(GrpcTransport, RefusesASecondProcessOfARank) {
  const GrpcHub hub("127.0.0.1:0", 2);
  auto ends = join_all({hub.address(), hub.address()});
  expect_error(ErrorCode::kFailedPrecondition, "another process is rank 1",
               [&] { join_grpc_network(hub.address(), 1, 2, {}, {.deadline = 10s}); });
  ends[0]->send(1, message(3, 3));
  EXPECT_TRUE(ends[1]->receive(30s));
  end_all(ends);
}

TEST(GrpcTransport, AHubThatComesBackKnowsByItsJournalWhoHasLeft) {
  Bytes kept;
  const auto hub_at = [&](const std::string& address) {
    return std::make_unique<GrpcHub>(
        address, 3,
        HubJournal{.kept = kept,
                   .keep = [&](ByteView bytes) { kept.assign(bytes.begin(), bytes.end()); }},
        GrpcSecurity());
  };
  auto hub = hub_at("127.0.0.1:0");
  const std::string address = hub->address();
  std::vector<std::future<std::unique_ptr<Transport>>> joining;
  for (const int rank : {0, 1, 2}) {
    joining.push_back(std::async(std::launch::async, [&, rank] {
      return join_grpc_network(address, rank, 3, {}, {.deadline = 30s});
    }));
  }
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joining) ends.push_back(end.get());
  ends[2].reset();
  EXPECT_FALSE(hub->wait(0ms));
  hub.reset();
  hub = hub_at(address);
  ends[0]->send(1, pattern(1000, 1));
  EXPECT_TRUE(ends[1]->receive(30s));
  EXPECT_THROW(join_grpc_network(address, 2, 3, {}, {.deadline = 1s}), Error);
  auto leaving = std::async(std::launch::async, [&] { ends[0].reset(); });
  ends[1].reset();
  leaving.wait();
  EXPECT_TRUE(hub->wait(30s));
  hub.reset();
  expect_error(ErrorCode::kFailedPrecondition, "of a job that is over", [&] { hub_at(address); });
  kept.front() ^= std::byte{1};
  expect_error(ErrorCode::kDataLoss, "damaged", [&] { hub_at(address); });
}

// Its nodes are over, and no other may have their ranks.
TEST(GrpcTransport, AHubThatComesBackKnowsByItsJournalThatTheJobWasAborted) {
  Bytes kept;
  {
    const HubJournal journal{
        .kept = {}, .keep = [&](ByteView bytes) { kept.assign(bytes.begin(), bytes.end()); }};
    const GrpcHub hub("127.0.0.1:0", 2, journal, GrpcSecurity());
    const auto ends = join_all({hub.address(), hub.address()});
    ends[0]->abort("rank 0 gave up");
    expect_error(ErrorCode::kAborted, "rank 0 gave up", [&] { ends[1]->receive(30s); });
  }
  expect_error(ErrorCode::kFailedPrecondition, "of a job that is over", [&] {
    GrpcHub("127.0.0.1:0", 2, HubJournal{.kept = kept, .keep = {}}, GrpcSecurity());
  });
}

// Each finds that it has nothing to do, as in a finished run that is started again.
TEST(GrpcTransport, AJobThatAllFindDoneIsOver) {
  const GrpcHub hub("127.0.0.1:0", 2);
  tell_done(hub.address(), "1", {}, 30s);
  EXPECT_FALSE(hub.wait(0ms));
  expect_error(ErrorCode::kFailedPrecondition, "the job has no rank 2",
               [&] { tell_done(hub.address(), "2", {}, 30s); });
  expect_error(ErrorCode::kFailedPrecondition, "the job has no rank a",
               [&] { tell_done(hub.address(), "a", {}, 30s); });
  tell_done(hub.address(), "0", {}, 30s);
  EXPECT_TRUE(hub.wait(30s));
}

TEST(GrpcTransport, RefusesWhatMakesNoSense) {
  const GrpcHub hub("127.0.0.1:0", 2);
  expect_error(ErrorCode::kInvalidArgument, "no rank 2 in a job of 2",
               [&] { join_grpc_network(hub.address(), 2, 2); });
  expect_error(ErrorCode::kFailedPrecondition, "the job has ranks 0 to 1",
               [&] { join_grpc_network(hub.address(), 2, 3, {}, {.deadline = 10s}); });
  expect_error(ErrorCode::kInvalidArgument, "a network of 0 nodes",
               [&] { join_grpc_network(hub.address(), 0, 0); });
  const GrpcHub of_members("127.0.0.1:0", MembershipLimits{}, {});
  expect_error(ErrorCode::kFailedPrecondition, "the members of this hub's job come and go",
               [&] { join_grpc_network(of_members.address(), 0, 2, {}, {.deadline = 10s}); });
  expect_error(ErrorCode::kInvalidArgument, "a progress limit of -1000 ms",
               [&] { join_grpc_network(hub.address(), 0, 2, {}, {.progress_limit = -1s}); });
  expect_error(ErrorCode::kInvalidArgument, "a hub for 0 nodes", [] { GrpcHub("127.0.0.1:0", 0); });
  expect_error(ErrorCode::kUnavailable, "cannot listen at", [&] { GrpcHub(hub.address(), 2); });
  expect_error(ErrorCode::kInvalidArgument, "not on this machine's loopback",
               [] { GrpcHub("0.0.0.0:0", 2); });
  expect_error(ErrorCode::kInvalidArgument, "not on this machine's loopback",
               [] { join_grpc_network("10.0.0.1:5000", 0, 2); });
  expect_error(ErrorCode::kInvalidArgument, "not on this machine's loopback",
               [] { join_grpc_network("127.example.com:5000", 0, 2); });
  for (const char* address : {"localhost", ":7100", "localhost:99999", "localhost:http"}) {
    expect_error(ErrorCode::kInvalidArgument, "write HOST:PORT", [&] { GrpcHub(address, 2); });
  }
  expect_error(ErrorCode::kUnavailable, "cannot reach the hub at 127.0.0.1:1",
               [] { join_grpc_network("127.0.0.1:1", 0, 2, {}, {.deadline = 1s}); });
  expect_error(ErrorCode::kNotFound, "certificate.pem", [&] {
    join_grpc_network(hub.address(), 0, 2, {.certificates = "/nowhere", .insecure = false});
  });
}

}  // namespace
}  // namespace tersewire
