// The in-process transport, and the refusals of joining one between processes.
#include "tersewire/transport.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "faulty_transports.h"
#include "tersewire/passing_transport.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using transport_cases::message;

class InProcessCases : public testing::TestWithParam<TransportCase> {};

TEST_P(InProcessCases, ForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const auto ends = make_in_process_network(ranks);
    run_on_all(ends, GetParam());
  }
}

// 100 Gbit/s: a case with 64 MiB is over soon.
TEST_P(InProcessCases, OverLimitedLinks) {
  const auto ends = make_in_process_network(3, {.bits_per_second = 1e11});
  run_on_all(ends, GetParam());
}

TEST_P(InProcessCases, OverLinksThatAreLate) {
  const auto ends = make_in_process_network(3, {.bits_per_second = 1e11,
                                                .delay_seconds = 5e-4,
                                                .jitter_seconds = 1e-3,
                                                .loss = 1e-5,
                                                .seed = 1});
  run_on_all(ends, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Transport, InProcessCases, testing::ValuesIn(kTransportCases), case_name);

TEST(InProcessTransport, SharesAMessageBetweenReceiversWithoutCopying) {
  auto ends = make_in_process_network(3);
  const SharedBytes bytes = message(10, 7);
  ends[0]->send(1, bytes);
  ends[0]->send(2, bytes);
  EXPECT_EQ(ends[1]->receive(1s)->bytes, bytes);
  EXPECT_EQ(ends[2]->receive(1s)->bytes, bytes);
}

TEST(InProcessTransport, SaysWhatWaitsForAPeer) {
  for (const double rate : {0.0, 1e9}) {
    const auto ends = make_in_process_network(3, {.bits_per_second = rate});
    const auto message = std::make_shared<const Bytes>(1000);
    ends[0]->send(1, message);
    ends[0]->send(1, message);
    ends[2]->send(1, message);
    EXPECT_EQ(ends[0]->peer(1).waiting, 2000U);
    EXPECT_EQ(ends[2]->peer(1).waiting, 1000U);
    EXPECT_EQ(ends[0]->peer(2).waiting, 0U);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends[1]->receive(10s));
    EXPECT_EQ(ends[0]->peer(1).waiting, 0U);
    EXPECT_EQ(ends[2]->peer(1).waiting, 0U);
  }
}

// With a message that was there before, one that comes, and the end of the job; and no more when
// nobody is called any longer.
TEST(InProcessTransport, CallsOnArrival) {
  for (const double rate : {0.0, 1e9}) {
    const auto ends = make_in_process_network(2, {.bits_per_second = rate});
    ends[0]->send(0, message(1, 1));
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t taken = 0;
    bool over = false;
    auto calls = ends[0]->on_arrival([&] {
      const std::lock_guard lock(mutex);
      try {
        while (ends[0]->receive(0ms)) ++taken;
      } catch (const Error&) {
        over = true;
      }
      changed.notify_all();
    });
    const auto reaches = [&](const auto& what) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, 20s, what);
    };
    EXPECT_TRUE(reaches([&] { return taken == 1; }));
    ends[1]->send(0, message(1, 2));
    EXPECT_TRUE(reaches([&] { return taken == 2; }));
    calls.reset();
    ends[1]->send(0, message(1, 3));
    EXPECT_TRUE(ends[0]->receive(20s));
    EXPECT_EQ(taken, 2U);
    calls = ends[0]->on_arrival([&] {
      const std::lock_guard lock(mutex);
      try {
        ends[0]->receive(0ms);
      } catch (const Error&) {
        over = true;
      }
      changed.notify_all();
    });
    ends[1]->abort("enough");
    EXPECT_TRUE(reaches([&] { return over; }));
  }
}

// Says what it was asked, and answers as no default does.
class AskedTransport final : public Transport {
 public:
  [[nodiscard]] int rank() const noexcept override { return 3; }
  [[nodiscard]] int size() const noexcept override { return 7; }
  void send(int to, SharedBytes bytes) override {
    asked.push_back("send " + std::to_string(to) + " " + std::to_string(bytes->size()));
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    asked.push_back("receive " + std::to_string(timeout.count()));
    return Incoming{.from = 5, .bytes = nullptr};
  }
  std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> arrived) override {
    arrived();
    asked.emplace_back("on_arrival");
    return nullptr;
  }
  void abort(const std::string& reason) noexcept override { asked.push_back("abort " + reason); }
  [[nodiscard]] Peer peer(int rank) const override {
    Peer peer;
    peer.waiting = static_cast<std::size_t>(rank);
    return peer;
  }
  void expect_at_most(std::size_t bytes) override {
    asked.push_back("expect_at_most " + std::to_string(bytes));
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return 11; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return 13; }

  std::vector<std::string> asked;
};

TEST(PassingTransport, PassesEveryCallOn) {
  AskedTransport end;
  PassingTransport passing(end);
  EXPECT_EQ(passing.rank(), 3);
  EXPECT_EQ(passing.size(), 7);
  EXPECT_EQ(passing.peer(6).waiting, 6U);
  EXPECT_EQ(passing.bytes_sent(), 11U);
  EXPECT_EQ(passing.bytes_received(), 13U);
  passing.send(2, message(10, 1));
  EXPECT_EQ(passing.receive(40ms)->from, 5);
  bool arrived = false;
  EXPECT_EQ(passing.on_arrival([&] { arrived = true; }), nullptr);
  EXPECT_TRUE(arrived);
  passing.abort("enough");
  passing.expect_at_most(9);
  EXPECT_EQ(end.asked, (std::vector<std::string>{"send 2 10", "receive 40", "on_arrival",
                                                 "abort enough", "expect_at_most 9"}));
}

TEST(InProcessTransport, RefusesANetworkOfNobody) {
  EXPECT_THROW(make_in_process_network(0), Error);
}

TEST(InProcessTransport, RefusesRatesThatAreNone) {
  for (const double rate : {-1.0, 999.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(make_in_process_network(2, {.bits_per_second = rate}), Error) << rate;
  }
}

TEST(InProcessTransport, RefusesFaultsThatCannotBe) {
  for (const double seconds : {-1e-9, 61.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(make_in_process_network(2, {.delay_seconds = seconds}), Error) << seconds;
    EXPECT_THROW(make_in_process_network(2, {.jitter_seconds = seconds}), Error) << seconds;
  }
  for (const double loss : {-0.01, 1e-7, 0.51, std::nan("")}) {
    EXPECT_THROW(make_in_process_network(2, {.loss = loss}), Error) << loss;
  }
}

TEST(InProcessTransport, DeliversNoEarlierThanLinksDelay) {
  const auto ends = make_in_process_network(2, {.delay_seconds = 0.01});
  const auto sent = std::chrono::steady_clock::now();
  ends[0]->send(1, message(10, 1));
  EXPECT_GE(ends[1]->receive(10s)->arrived, sent + 20ms);
}

// One that sent its last message and left is not gone before that has come.
TEST(InProcessTransport, WaitsForWhatIsOnItsWayFromOneThatLeft) {
  auto ends = make_in_process_network(2, {.delay_seconds = 0.1});
  ends[1]->send(0, message(10, 1));
  ends[1].reset();
  EXPECT_EQ(receive_within(*ends[0], {8ms, 60s}, "its last", [](int) { return true; }).from, 1);
  EXPECT_TRUE(ends[0]->peer(1).gone);
}

TEST(InProcessTransport, DeliversNoEarlierThanALinkCarries) {
  auto ends = make_in_process_network(2, {.bits_per_second = 8e6});  // a byte a microsecond
  const auto sent = std::chrono::steady_clock::now();
  ends[0]->send(1, message(1448, 1));
  ends[0]->send(1, message(1448, 2));
  const auto first = ends[1]->receive(10s)->arrived;
  EXPECT_GE(first, sent + 1514us);
  const auto second = ends[1]->receive(10s)->arrived;
  EXPECT_GE(second, first + 1514us);
  EXPECT_GE(std::chrono::steady_clock::now(), second);
}

TEST(InProcessTransport, CarriesMessagesToOneselfOverNoLink) {
  auto ends = make_in_process_network(2, {.bits_per_second = 1000});
  ends[0]->send(1, message(7500, 1));  // a minute on its link
  ends[1]->send(1, message(7500, 2));
  EXPECT_EQ(ends[1]->receive(30s)->from, 1);
}

// ---- Waiting within limits.

std::string refusal_to_wait(Transport& end, const WaitLimits& limits) {
  try {
    receive_within(end, limits, "Godot");
    return "a message came";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    return error.what();
  }
}

TEST(ReceiveWithin, WaitsLongerThanTheDeadlineForThoseThatAreAlive) {
  const auto ends = make_in_process_network(2);
  std::thread busy([&] {
    std::this_thread::sleep_for(200ms);
    ends[1]->send(0, message(1, 1));
  });
  EXPECT_EQ(receive_within(*ends[0], {20ms, 60s}, "a message").from, 1);
  busy.join();
}

TEST(ReceiveWithin, EndsAtTheProgressLimit) {
  const auto ends = make_in_process_network(2);
  const std::string sentence = refusal_to_wait(*ends[0], {5ms, 40ms});
  EXPECT_NE(sentence.find("nothing has arrived at rank 0 for 0.04 s while waiting for Godot"),
            std::string::npos)
      << sentence;
  EXPECT_NE(sentence.find("raise the progress limit"), std::string::npos) << sentence;
}

TEST(ReceiveWithin, NamesThoseThatAreWaitedFor) {
  const auto ends = make_in_process_network(8);
  const auto sentence = [&](const std::function<bool(int)>& needs) -> std::string {
    try {
      receive_within(*ends[0], {60s, 40ms}, "Godot", needs);
    } catch (const Error& error) {
      return error.what();
    }
    return "a message came";
  };
  const std::string one = sentence([](int rank) { return rank == 3; });
  EXPECT_NE(one.find("while waiting for Godot from rank 3, though"), std::string::npos) << one;
  const std::string all = sentence([](int) { return true; });
  EXPECT_NE(all.find("Godot from rank 1, rank 2, rank 3, rank 4 and 3 more, though"),
            std::string::npos)
      << all;
}

// An end whose receive() returns before its time is over.
class HastyTransport final : public OwningTransport {
 public:
  using OwningTransport::OwningTransport;
  std::optional<Incoming> receive(std::chrono::milliseconds) override {
    return OwningTransport::receive(0ms);
  }
};

TEST(ReceiveWithin, EndsThoughEachLookIsShort) {
  auto ends = make_in_process_network(2);
  HastyTransport hasty(std::move(ends[0]));
  EXPECT_NE(refusal_to_wait(hasty, {60s, 40ms}).find("nothing has arrived"), std::string::npos);
}

TEST(Transports, RefuseNoMessage) {
  const auto ends = make_in_process_network(2);
  try {
    ends[0]->send(1, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "rank 0 sends rank 1 no message but null; pass its bytes");
  }
}

TEST(ReceiveWithin, NamesTheOneThatIsSilent) {
  auto ends = make_in_process_network(3);
  Connection connection;
  connection.cut();
  FarTransport end(std::move(ends[0]), 2, connection);
  const std::string sentence = refusal_to_wait(end, {40ms, 60s});
  EXPECT_NE(sentence.find("rank 0 has heard nothing from rank 2 for "), std::string::npos)
      << sentence;
  EXPECT_NE(sentence.find(" s while waiting for Godot"), std::string::npos) << sentence;
}

TEST(ReceiveWithin, WaitsForNobodyWhereAllHaveLeft) {
  auto ends = make_in_process_network(3);
  ends[1].reset();
  EXPECT_EQ(ends[0]->peer(1).gone, "has left the network");
  EXPECT_FALSE(ends[0]->peer(2).gone);
  // One is enough to wait for.
  EXPECT_NE(refusal_to_wait(*ends[0], {10ms, 40ms}).find("nothing has arrived at rank 0"),
            std::string::npos);
  ends[2]->send(0, message(1, 1));
  ends[2].reset();
  EXPECT_EQ(receive_within(*ends[0], {10ms, 60s}, "what was sent before").from, 2);
  const std::string sentence = refusal_to_wait(*ends[0], {10ms, 60s});
  EXPECT_NE(sentence.find("every other node has left"), std::string::npos) << sentence;
}

TEST(ReceiveWithin, NamesWhoHasLeftAndIsNeeded) {
  auto ends = make_in_process_network(3);
  ends[2]->send(0, message(1, 1));
  ends[2].reset();
  const auto wait = [&](int needed) {
    return receive_within(*ends[0], {40ms, 100ms}, "Godot",
                          [&](int rank) { return rank == needed; });
  };
  EXPECT_EQ(wait(2).from, 2);
  try {
    wait(2);
    ADD_FAILURE() << "it waits for nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("rank 2 has left the job, and rank 0 waits for Godot"),
              std::string::npos)
        << error.what();
  }
  try {
    wait(1);
    ADD_FAILURE() << "it waits for nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
  }
}

ErrorCode refusal_of_mpi(std::chrono::milliseconds deadline) {
  try {
    join_mpi_network({deadline});
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(MpiTransport, IsRefusedOutsideOfALauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) unsetenv(name);
#ifdef TERSEWIRE_MPI
  EXPECT_EQ(refusal_of_mpi(0ms), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal_of_mpi(1s), ErrorCode::kFailedPrecondition);
#else
  EXPECT_EQ(refusal_of_mpi(1s), ErrorCode::kUnimplemented);
#endif
}

}  // namespace
}  // namespace tersewire
