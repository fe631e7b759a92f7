// What every transport has to do, as what each rank of a network does for it: threads of one
// process, or processes. A case leaves no message behind, unless it says that it ends the network.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tersewire/error.h"
#include "tersewire/transport.h"

namespace tersewire {

using namespace std::chrono_literals;

// One rank's end, whose messages can be taken by sender: other ranks may be ahead.
class Rank {
 public:
  explicit Rank(Transport& end) : end_(end), waiting_(static_cast<std::size_t>(end.size())) {}

  [[nodiscard]] Transport& end() { return end_; }
  [[nodiscard]] int number() const { return end_.rank(); }
  [[nodiscard]] int ranks() const { return end_.size(); }
  [[nodiscard]] int next() const { return (number() + 1) % ranks(); }
  [[nodiscard]] int last() const { return ranks() - 1; }

  void send(int to, SharedBytes bytes) { end_.send(to, std::move(bytes)); }

  // The next message of one rank. One thread at a time.
  SharedBytes from(int rank, std::chrono::milliseconds timeout = 30s) {
    auto& waiting = waiting_.at(static_cast<std::size_t>(rank));
    while (waiting.empty()) {
      Incoming message = receive(timeout);
      waiting_.at(static_cast<std::size_t>(message.from)).push_back(std::move(message.bytes));
    }
    SharedBytes bytes = std::move(waiting.front());
    waiting.pop_front();
    return bytes;
  }

  // The next message of any rank that is not empty: those are for meet(). Any thread.
  Incoming any() {
    for (;;) {
      if (auto message = any_waiting()) return std::move(*message);
      Incoming message = receive();
      if (!message.bytes->empty()) return message;
      const std::lock_guard lock(mutex_);
      waiting_.at(static_cast<std::size_t>(message.from)).push_back(std::move(message.bytes));
    }
  }

  // Waits until all ranks are here.
  void meet() {
    for (int rank = 0; rank < ranks(); ++rank) send(rank, std::make_shared<const Bytes>());
    for (int rank = 0; rank < ranks(); ++rank) EXPECT_TRUE(from(rank)->empty());
  }

 private:
  std::optional<Incoming> any_waiting() {
    const std::lock_guard lock(mutex_);
    for (int rank = 0; rank < ranks(); ++rank) {
      auto& waiting = waiting_.at(static_cast<std::size_t>(rank));
      if (waiting.empty() || waiting.front()->empty()) continue;
      Incoming message{.from = rank, .bytes = std::move(waiting.front())};
      waiting.pop_front();
      return message;
    }
    return std::nullopt;
  }

  Incoming receive(std::chrono::milliseconds timeout = 30s) {
    auto message = end_.receive(timeout);
    if (!message) throw std::runtime_error("nothing has arrived in time");
    return std::move(*message);
  }

  Transport& end_;
  std::mutex mutex_;
  std::vector<std::deque<SharedBytes>> waiting_;  // by sender
};

namespace transport_cases {

inline SharedBytes message(std::size_t size, int value) {
  return std::make_shared<const Bytes>(size, static_cast<std::byte>(value));
}

// Bytes that depend on their place, so that none can be exchanged for another.
inline SharedBytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < size; i += sizeof(state)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t mixed = state ^ (state >> 29U);
    std::memcpy(bytes.data() + i, &mixed, std::min(sizeof(mixed), size - i));
  }
  return std::make_shared<const Bytes>(std::move(bytes));
}

inline bool same(const SharedBytes& a, const SharedBytes& b) {
  if (a->size() != b->size()) return false;
  return a->empty() || std::memcmp(a->data(), b->data(), a->size()) == 0;
}

inline void delivers_whole_and_in_order(Rank& me) {
  constexpr int kMessages = 200;
  for (int i = 0; i < kMessages; ++i) {
    for (int to = 0; to < me.ranks(); ++to) {
      me.send(to, message(static_cast<std::size_t>(i), i + me.number()));
    }
  }
  for (int from = 0; from < me.ranks(); ++from) {
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(same(me.from(from), message(static_cast<std::size_t>(i), i + from)));
    }
  }
}

inline void delivers_many(Rank& me) {
  constexpr std::uint32_t kMessages = 20000;
  for (std::uint32_t i = 0; i < kMessages; ++i) me.send(me.next(), pattern(12, i));
  const int before = (me.number() + me.last()) % me.ranks();
  for (std::uint32_t i = 0; i < kMessages; ++i) ASSERT_TRUE(same(me.from(before), pattern(12, i)));
}

// Sizes at which transports change their ways: pieces of the mpi transport end at 2^24 bytes.
inline void delivers_every_size(Rank& me) {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
#ifdef __SANITIZE_THREAD__  // which takes ten seconds for a piece
  constexpr std::array<std::size_t, 6> kSizes{0, 1, 4095, 65537, kPiece + 1, 7};
#else
  constexpr std::array<std::size_t, 10> kSizes{
      0, 1, 4095, 65537, kPiece - 1, kPiece, 3, kPiece + 1, 2 * kPiece + 12345, 7};
#endif
  for (std::uint32_t i = 0; i < kSizes.size(); ++i) {
    if (me.number() == 0) me.send(me.last(), pattern(kSizes[i], i));
    if (me.number() != me.last()) continue;
    EXPECT_TRUE(same(me.from(0), pattern(kSizes[i], i))) << kSizes[i];
  }
}

inline void shares_a_message_between_receivers(Rank& me) {
  const SharedBytes bytes = pattern(100000, static_cast<std::uint64_t>(me.number()));
  for (int to = 0; to < me.ranks(); ++to) me.send(to, bytes);
  for (int from = 0; from < me.ranks(); ++from) {
    EXPECT_TRUE(same(me.from(from), pattern(100000, static_cast<std::uint64_t>(from))));
  }
}

inline void counts_the_bytes_of_messages(Rank& me) {
  const std::uint64_t sent = me.end().bytes_sent();
  const std::uint64_t received = me.end().bytes_received();
  me.meet();
  me.send(me.next(), message(100, 1));
  me.send(me.next(), message(23, 1));
  EXPECT_EQ(me.end().bytes_sent() - sent, 123U);
  const int before = (me.number() + me.last()) % me.ranks();
  me.from(before);
  me.from(before);
  EXPECT_EQ(me.end().bytes_received() - received, 123U);
}

inline void may_be_used_by_any_thread(Rank& me) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 250;
  me.meet();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&me, thread] {
      for (int i = 0; i < kMessages; ++i) {
        for (int to = 0; to < me.ranks(); ++to) me.send(to, message(1, thread));
      }
    });
  }
  std::atomic<int> left{kThreads * kMessages * me.ranks()};
  std::array<std::atomic<int>, kThreads> seen{};
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      while (left-- > 0) ++seen.at(std::to_integer<std::size_t>(me.any().bytes->front()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : seen) EXPECT_EQ(count, kMessages * me.ranks());
  me.meet();
}

inline void waits_as_long_as_it_is_told(Rank& me) {
  me.meet();
  if (me.number() == 0) {
    EXPECT_FALSE(me.end().receive(0ms));
    EXPECT_FALSE(me.end().receive(5ms));
    for (int to = 0; to < me.ranks(); ++to) me.send(to, message(1, 1));
  }
  me.from(0, std::chrono::milliseconds::max());
}

inline void refuses_ranks_that_do_not_exist(Rank& me) {
  for (const int to : {-1, me.ranks()}) {
    try {
      me.send(to, message(1, 1));
      ADD_FAILURE() << "sent to " << to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

inline void expect_aborted(const std::function<void()>& call, const std::string& reason) {
  try {
    call();
    ADD_FAILURE() << "not aborted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_EQ(error.what(), reason);
  }
}

// Ends the network.
inline void abort_reaches_those_that_wait_and_those_that_come(Rank& me) {
  const std::string reason = "rank " + std::to_string(me.last()) + " gave up";
  me.send(me.last(), message(1, 1));
  for (int from = 0; from < me.ranks() && me.number() == me.last(); ++from) me.from(from);
  std::thread waiting([&] { expect_aborted([&] { me.end().receive(60s); }, reason); });
  if (me.number() == me.last()) me.end().abort(reason);
  waiting.join();
  me.end().abort("a later reason");
  expect_aborted([&] { me.send(0, message(1, 1)); }, reason);
  expect_aborted([&] { me.end().receive(0ms); }, reason);
}

}  // namespace transport_cases

struct TransportCase {
  const char* name;
  void (*run)(Rank& me);
};

// A thread an end.
inline void run_on_all(const std::vector<std::unique_ptr<Transport>>& ends,
                       const TransportCase& what) {
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    threads.emplace_back([&] {
      Rank me(*end);
      what.run(me);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// In this order: the last one ends the network.
inline constexpr std::array<TransportCase, 9> kTransportCases{{
    {"DeliversWholeAndInOrder", transport_cases::delivers_whole_and_in_order},
    {"DeliversMany", transport_cases::delivers_many},
    {"DeliversEverySize", transport_cases::delivers_every_size},
    {"SharesAMessageBetweenReceivers", transport_cases::shares_a_message_between_receivers},
    {"CountsTheBytesOfMessages", transport_cases::counts_the_bytes_of_messages},
    {"MayBeUsedByAnyThread", transport_cases::may_be_used_by_any_thread},
    {"WaitsAsLongAsItIsTold", transport_cases::waits_as_long_as_it_is_told},
    {"RefusesRanksThatDoNotExist", transport_cases::refuses_ranks_that_do_not_exist},
    {"AbortReachesThoseThatWaitAndThoseThatCome",
     transport_cases::abort_reaches_those_that_wait_and_those_that_come},
}};

// The name of a test with such a parameter.
inline std::string case_name(const testing::TestParamInfo<TransportCase>& info) {
  return info.param.name;
}

}  // namespace tersewire
