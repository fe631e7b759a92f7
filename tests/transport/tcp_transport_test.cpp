// The tcp transport over loopback: threads as ranks, strangers, and peers that end without a word.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>

#include "expect_error.h"
#include "network_ends.h"
#include "tcp_hello.h"
#include "tcp_socket.h"
#include "tcp_stream.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using test::end_all;
using transport_cases::message;

const std::string kToken(32, 't');

using End = std::unique_ptr<Transport>;

// Where ranks meet, and how each of them joins.
struct Meetings {
  explicit Meetings(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      meetings.push_back(std::make_unique<TcpMeeting>("127.0.0.1"));
      addresses.push_back(meetings.back()->address());
    }
  }
  End join(int rank, std::chrono::milliseconds deadline = 30s) {
    return join(rank, addresses, deadline);
  }
  End join(int rank, const std::vector<std::string>& known,
           std::chrono::milliseconds deadline = 30s, const std::string& token = kToken) {
    return meetings[static_cast<std::size_t>(rank)]->join(rank, known, token,
                                                          {.deadline = deadline});
  }

  std::vector<std::unique_ptr<TcpMeeting>> meetings;
  std::vector<std::string> addresses;
};

template <typename Task>
auto in_thread(const Task& task) {
  return std::async(std::launch::async, task);
}

std::vector<End> make_network(int ranks) {
  Meetings meetings(ranks);
  return test::join_all(ranks, [&](int rank) { return meetings.join(rank); });
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
  auto sockets =
      in_thread([&, &listener = listener] { return meet(listener, 2, addresses, kToken, 30s); });
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
  HalfNetwork() {
    TcpMeeting meeting("127.0.0.1");
    const auto [listener, own] = listen_at("127.0.0.1");
    const std::vector<std::string> addresses{meeting.address(), own};
    auto joined = in_thread([&] { return meeting.join(0, addresses, kToken, {.deadline = 30s}); });
    socket = std::move(meet(listener, 1, addresses, kToken, 30s)[0]);
    end = joined.get();
  }

  Socket socket;
  std::unique_ptr<Transport> end;
};

TEST(TcpTransport, EndsTheJobWhereAConnectionEndsWithoutAGoodbye) {
  HalfNetwork network;
  network.socket.close();
  expect_error(ErrorCode::kAborted, "rank 1 is gone: its connection was closed",
               [&] { network.end->receive(30s); });
}

TEST(TcpTransport, EndsTheJobWhereAPeerSaysNonsense) {
  HalfNetwork network;
  const TcpHead head = tcp_head(static_cast<TcpRecord>(9), 0);
  ASSERT_EQ(::send(network.socket.get(), head.data(), head.size(), 0), 8);
  expect_error(ErrorCode::kAborted, "record of kind 9", [&] { network.end->receive(30s); });
}

TEST(TcpTransport, WaitsForThoseBelow) {
  Meetings meetings(2);
  auto joining = in_thread([&] { return meetings.join(1, std::chrono::milliseconds::max()); });
  EXPECT_EQ(joining.wait_for(100ms), std::future_status::timeout);
  const End rank_0 = meetings.join(0);
  const End rank_1 = joining.get();
  rank_1->send(0, message(10, 1));
  EXPECT_TRUE(rank_0->receive(30s));
  rank_0->abort("the test is over");
}

TEST(TcpTransport, JoinsInAnyOrder) {
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    Meetings meetings(4);
    std::array<std::future<End>, 4> joining;
    for (const int rank : order) {
      joining[static_cast<std::size_t>(rank)] =
          in_thread([&, rank] { return meetings.join(rank); });
      std::this_thread::sleep_for(1ms);
    }
    std::vector<End> ends;
    for (auto& end : joining) ends.push_back(end.get());
    end_all(ends);
  } while (std::ranges::next_permutation(order).found);
}

TEST(TcpTransport, NamesARankBelowThatNeverJoins) {
  expect_error(ErrorCode::kDeadlineExceeded, "rank 0 has not answered rank 1; check whether",
               [] { Meetings(2).join(1, 200ms); });
}

TEST(TcpTransport, NamesTheMissingRankToThoseBelowAndAbove) {
  Meetings meetings(3);
  auto above = in_thread([&] { return meetings.join(2, 300ms); });
  expect_error(ErrorCode::kDeadlineExceeded, "rank 1 has not connected to rank 0; check whether",
               [&] { meetings.join(0, 300ms); });
  expect_error(ErrorCode::kDeadlineExceeded, "rank 1 has not answered rank 2; check whether",
               [&] { above.get(); });
}

TEST(TcpTransport, NamesTheTokenWhereOneIsWrong) {
  Meetings meetings(2);
  const auto expect_no_answer = [&](std::size_t token_bytes, ErrorCode code) {
    auto other = in_thread(
        [&] { return meetings.join(1, meetings.addresses, 200ms, std::string(token_bytes, 'x')); });
    expect_error(ErrorCode::kDeadlineExceeded, "had another token; pass every rank the same",
                 [&] { meetings.join(0, 500ms); });
    expect_error(code, "give every rank the same token", [&] { other.get(); });
  };
  expect_no_answer(kToken.size(), ErrorCode::kUnavailable);
  expect_no_answer(kToken.size() + 1, ErrorCode::kUnavailable);
  expect_no_answer(kToken.size() - 1, ErrorCode::kDeadlineExceeded);  // the rest may still come
}

TEST(TcpTransport, RefusesAnotherNumberOfRanks) {
  Meetings meetings(3);
  const std::vector<std::string> two(meetings.addresses.begin(), meetings.addresses.end() - 1);
  const auto expect_refusal = [&](const std::vector<std::string>& known_to_0,
                                  const std::vector<std::string>& known_to_1,
                                  const std::string& sentence) {
    auto other = in_thread([&] { return meetings.join(1, known_to_1); });
    expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { meetings.join(0, known_to_0); });
    expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { other.get(); });
  };
  expect_refusal(two, meetings.addresses,
                 "rank 1 joins a network of 3 ranks and rank 0 one of 2; pass every rank the same");
  expect_refusal(meetings.addresses, two,
                 "rank 1 joins a network of 2 ranks and rank 0 one of 3; pass every rank the same");
}

TEST(TcpTransport, RefusesAddressesInAnotherOrder) {
  Meetings meetings(3);
  std::vector<std::string> swapped = meetings.addresses;
  std::swap(swapped[0], swapped[1]);
  auto other = in_thread([&] { return meetings.join(2, swapped); });
  const std::string sentence =
      "rank 2 has rank 0's address for rank 1's; pass every rank the same addresses";
  expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { meetings.join(0); });
  // It hears of rank 0 alone.
  expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { other.get(); });
  // Two ranks: the upper dials itself.
  const std::vector<std::string> two{meetings.addresses[1], meetings.addresses[0]};
  expect_error(ErrorCode::kFailedPrecondition, "rank 1 has rank 1's address for rank 0's",
               [&] { meetings.join(1, two); });
}

// A connection of this test's own, which says just this.
Socket stranger(const std::string& address, const std::string& text) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(' ')))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), text.size());
  return socket;
}

// Until the other end closes.
std::size_t bytes_from(const Socket& socket) {
  std::array<char, 4096> bytes;
  std::size_t all = 0;
  for (ssize_t got = 1; got > 0; all += static_cast<std::size_t>(std::max<ssize_t>(got, 0))) {
    got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
  }
  return all;
}

// What someone says to a rank of three who is none of those that it expects.
std::vector<std::string> said_by_strangers(int to) {
  const std::string hello = packed(TcpHello{.from = to + 1, .to = to, .ranks = 3});
  std::vector<std::string> texts{"",
                                 "x",
                                 std::string(1000, '\xff'),
                                 hello,
                                 hello + kToken.substr(1),
                                 hello + std::string(kToken.size(), 'x'),
                                 hello + kToken + "x"};
  for (const int from : {-1, 0, to, 3}) {
    texts.push_back(packed(TcpHello{.from = from, .to = to, .ranks = 3}) + kToken);
  }
  return texts;
}

TEST(TcpTransport, JoinsInSpiteOfStrangers) {
  Meetings meetings(3);
  std::vector<Socket> strangers;
  for (const int to : {0, 1}) {
    const std::string& address = meetings.addresses[static_cast<std::size_t>(to)];
    for (const std::string& text : said_by_strangers(to)) {
      strangers.push_back(stranger(address, text));
      stranger(address, text);  // who is gone at once
    }
    // A rank that has given up, and calls again later.
    stranger(address, packed(TcpHello{.from = to + 1, .to = to, .ranks = 3}) + kToken);
  }
  auto ends = test::join_all(3, [&](int rank) { return meetings.join(rank); });
  for (std::size_t i = 0; i < strangers.size(); ++i) EXPECT_EQ(bytes_from(strangers[i]), 0) << i;
  for (const auto& end : ends) end->send(1, message(9, 1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ends[1]->receive(30s));
  end_all(ends);
}

TEST(TcpTransport, BelievesNoAnswerButTheRanks) {
  const std::string right = packed(TcpHello{.from = 0, .to = 1, .ranks = 2});
  const auto answered = [&](const std::string& text, std::chrono::milliseconds deadline) {
    Meetings meetings(2);
    auto [listener, address] = listen_at("127.0.0.1");
    auto joining = in_thread([&meetings, deadline, address = address] {
      return meetings.join(1, {address, meetings.addresses[1]}, deadline);
    });
    Socket socket;
    while (!socket.is_open()) socket = Socket(::accept(listener.get(), nullptr, nullptr));
    ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (deadline > 1s) socket.close();
    joining.get();
  };
  const std::string what_to_check = "check whether its process runs";
  expect_error(ErrorCode::kDeadlineExceeded, what_to_check, [&] { answered("", 200ms); });
  expect_error(ErrorCode::kDeadlineExceeded, what_to_check,
               [&] { answered(right.substr(1), 200ms); });
  for (const std::string& text : {std::string(), right.substr(1), std::string(right.size(), 'x'),
                                  packed(TcpHello{.from = 0, .to = 0, .ranks = 2})}) {
    expect_error(ErrorCode::kUnavailable, what_to_check, [&] { answered(text, 30s); });
  }
}

// Someone is there, and cannot be taken in.
TEST(TcpTransport, SaysThatItHasNoFileDescriptorLeft) {
  const auto [listener, own] = listen_at("127.0.0.1");
  const std::vector<std::string> addresses{own, own};
  const Socket other = stranger(own, "");
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
  expect_error(ErrorCode::kInvalidArgument, "a deadline of 0 ms is not between 1 ms and 30 days",
               [&] { meeting.join(0, {meeting.address()}, kToken, {.deadline = 0s}); });
  expect_error(ErrorCode::kUnavailable, "rank 0 cannot be reached", [&] {
    meeting.join(1, {"127.0.0.1 1", meeting.address()}, kToken);
  });
  expect_error(ErrorCode::kUnavailable, "has no address", [] { TcpMeeting("no such host."); });
}

TEST(TcpHello, IsAsItsFormatSays) {
  const TcpHello hello{.from = 258, .to = 3, .ranks = 1 << 24};
  const std::string bytes("tersewire tcp 2\n\2\1\0\0\3\0\0\0\0\0\0\1", kTcpHelloBytes);
  EXPECT_EQ(packed(hello), bytes);
  EXPECT_EQ(parsed_hello(bytes), hello);
  EXPECT_FALSE(parsed_hello(bytes + "x"));
  EXPECT_FALSE(parsed_hello(bytes.substr(1)));
  EXPECT_FALSE(parsed_hello(""));
  EXPECT_FALSE(parsed_hello("tersewire tcp 1\n" + bytes.substr(16)));
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
