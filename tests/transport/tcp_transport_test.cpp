// The tcp transport over loopback: threads as ranks, strangers, and peers that end without a word.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>

#include "expect_error.h"
#include "network_ends.h"
#include "tcp_socket.h"
#include "tcp_stream.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using test::end_all;
using transport_cases::message;

const std::string kToken(32, 't');

std::vector<std::unique_ptr<Transport>> make_network(int ranks) {
  std::vector<std::unique_ptr<TcpMeeting>> meetings;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    meetings.push_back(std::make_unique<TcpMeeting>("127.0.0.1"));
    addresses.push_back(meetings.back()->address());
  }
  return test::join_all(ranks, [&](int rank) {
    return meetings[static_cast<std::size_t>(rank)]->join(rank, addresses, kToken,
                                                          {.deadline = 30s});
  });
}

class TcpCases : public testing::TestWithParam<TransportCase> {};

TEST_P(TcpCases, ForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    auto ends = make_network(ranks);
    run_on_all(ends, GetParam());
    end_all(ends);
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, TcpCases, testing::ValuesIn(kTransportCases), case_name);

TEST(TcpTransport, DeliversWhatWasSentBeforeItsSenderLeft) {
  auto ends = make_network(2);
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  ends[0]->send(1, message(kBytes, 5));
  auto leaving = std::async(std::launch::async, [&] { ends[0].reset(); });
  const auto incoming = ends[1]->receive(30s);
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(transport_cases::same(incoming->bytes, message(kBytes, 5)));
  leaving.get();
  while (!ends[1]->peer(0).gone) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(ends[1]->receive(0ms));
  expect_error(ErrorCode::kUnavailable, "rank 0 has left",
               [&] { ends[1]->send(0, message(1, 1)); });
}

// Rank 2, a socket of this test's own, tells rank 1 alone.
TEST(TcpTransport, SaysWhyTheJobEndedBeforeItLeaves) {
  std::array<TcpMeeting, 2> meetings{TcpMeeting("127.0.0.1"), TcpMeeting("127.0.0.1")};
  const auto [listener, own] = listen_at("127.0.0.1");
  const std::vector<std::string> addresses{meetings[0].address(), meetings[1].address(), own};
  auto sockets = std::async(std::launch::async, [&, &listener = listener] {
    return meet(listener, 2, addresses, kToken, 30s);
  });
  auto ends = test::join_all(2, [&](int rank) {
    return meetings[static_cast<std::size_t>(rank)].join(rank, addresses, kToken,
                                                         {.deadline = 30s});
  });
  const std::vector<Socket> stranger = sockets.get();
  const std::string reason = "worker 0 has no more memory";
  const TcpHead head = tcp_head(TcpRecord::kAbort, reason.size());
  ASSERT_EQ(::send(stranger[1].get(), head.data(), head.size(), 0), head.size());
  ASSERT_EQ(::send(stranger[1].get(), reason.data(), reason.size(), 0), reason.size());
  expect_error(ErrorCode::kAborted, reason, [&] { ends[1]->receive(30s); });
  auto leaving = std::async(std::launch::async, [&] { ends[1].reset(); });
  expect_error(ErrorCode::kAborted, reason, [&] {
    for (;;) ends[0]->send(1, message(1, 1));
  });
  end_all(ends);
}

TEST(TcpTransport, SaysThatItsNodeIsAlive) {
  const auto ends = make_network(2);
  const auto first = ends[0]->peer(1).heard;
  while (ends[0]->peer(1).heard <= first) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(ends[0]->receive(0ms));
}

TEST(TcpTransport, RefusesAMessageAboveTheLongest) {
  auto ends = make_network(2);
  ends[1]->expect_at_most(100);
  ends[0]->send(1, message(100, 1));
  EXPECT_TRUE(ends[1]->receive(30s));
  ends[0]->send(1, message(101, 1));
  expect_error(ErrorCode::kAborted, "it announces 101 bytes", [&] { ends[1]->receive(30s); });
  expect_error(ErrorCode::kAborted, "rank 0: it announces 101 bytes",
               [&] { ends[0]->receive(30s); });
  end_all(ends);
}

// Rank 1 is a socket of this test's own.
struct HalfNetwork {
  explicit HalfNetwork(const std::string& token) {
    TcpMeeting meeting("127.0.0.1");
    const auto [listener, own] = listen_at("127.0.0.1");
    const std::vector<std::string> addresses{meeting.address(), own};
    auto joined = std::async(std::launch::async, [&] {
      return meeting.join(0, addresses, kToken, {.deadline = token == kToken ? 30s : 1s});
    });
    try {
      socket = std::move(meet(listener, 1, addresses, token, 30s)[0]);
    } catch (...) {
    }
    end = joined.get();
  }

  Socket socket;
  std::unique_ptr<Transport> end;
};

TEST(TcpTransport, EndsTheJobWhereAConnectionEndsWithoutAGoodbye) {
  HalfNetwork network(kToken);
  network.socket.close();
  expect_error(ErrorCode::kAborted, "rank 1 is gone: its connection was closed",
               [&] { network.end->receive(30s); });
}

TEST(TcpTransport, EndsTheJobWhereAPeerSaysNonsense) {
  HalfNetwork network(kToken);
  const TcpHead head = tcp_head(static_cast<TcpRecord>(9), 0);
  ASSERT_EQ(::send(network.socket.get(), head.data(), head.size(), 0), 8);
  expect_error(ErrorCode::kAborted, "record of kind 9", [&] { network.end->receive(30s); });
}

TEST(TcpTransport, TurnsAwayWhoDoesNotKnowTheToken) {
  expect_error(ErrorCode::kDeadlineExceeded, "rank 1 has not connected to rank 0",
               [] { HalfNetwork network(std::string(32, 'x')); });
}

// Rank 1 is there, and cannot be taken in.
TEST(TcpTransport, SaysThatItHasNoFileDescriptorLeft) {
  const auto [listener, own] = listen_at("127.0.0.1");
  const auto [other, address] = listen_at("127.0.0.1");
  const std::vector<std::string> addresses{own, address};
  const std::vector<Socket> rank_1 = meet(other, 1, addresses, kToken, 30s);
  // From the lowest number that is free on, none may be given out.
  const int lowest = ::dup(listener.get());
  ::close(lowest);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  expect_error(ErrorCode::kResourceExhausted, "raise the limit (ulimit -n)",
               [&, &listener = listener] { meet(listener, 0, addresses, kToken, 30s); });
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(TcpTransport, RefusesWhatMakesNoSense) {
  TcpMeeting meeting("127.0.0.1");
  expect_error(ErrorCode::kInvalidArgument, "no rank 1 among 1",
               [&] { meeting.join(1, {meeting.address()}, kToken); });
  expect_error(ErrorCode::kInvalidArgument, "easy to guess",
               [&] { meeting.join(0, {meeting.address()}, "short"); });
  expect_error(ErrorCode::kUnavailable, "rank 0 cannot be reached", [&] {
    meeting.join(1, {"127.0.0.1 1", meeting.address()}, kToken);
  });
  expect_error(ErrorCode::kUnavailable, "has no address", [] { TcpMeeting("no such host."); });
}

// Byte by byte, as a network may cut it.
TEST(TcpReader, PutsRecordsTogether) {
  TcpReader reader;
  Bytes stream;
  const auto append = [&](TcpRecord kind, const Bytes& bytes) {
    const TcpHead head = tcp_head(kind, bytes.size());
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  };
  append(TcpRecord::kAlive, {});
  append(TcpRecord::kMessage, Bytes(3, std::byte{7}));
  append(TcpRecord::kMessage, {});
  append(TcpRecord::kAbort, Bytes(2, std::byte{'x'}));
  std::vector<std::pair<TcpRecord, std::size_t>> found;
  for (const std::byte byte : stream) {
    ASSERT_FALSE(reader.room().empty());
    reader.room()[0] = byte;
    reader.taken(1, 3);
    while (const auto record = reader.next())
      found.emplace_back(record->kind, record->bytes.size());
  }
  const std::vector<std::pair<TcpRecord, std::size_t>> expected{{TcpRecord::kAlive, 0},
                                                                {TcpRecord::kMessage, 3},
                                                                {TcpRecord::kMessage, 0},
                                                                {TcpRecord::kAbort, 2}};
  EXPECT_EQ(found, expected);
}

// A head that announces 2^50 bytes costs no such memory.
TEST(TcpReader, MakesRoomAsBytesCome) {
  TcpReader reader;
  const TcpHead head = tcp_head(TcpRecord::kMessage, std::size_t{1} << 50);
  std::ranges::copy(head, reader.room().begin());
  reader.taken(head.size(), std::uint64_t{1} << 50);
  EXPECT_LE(reader.room().size(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace tersewire
