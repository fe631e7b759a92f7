// What the mpi transport does without MPI: putting messages together from pieces, and counting what
// may be on its way.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "message_pieces.h"
#include "mpi_mailbox.h"
#include "tersewire/error.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPiece = 16;
constexpr std::uint64_t kLongest = 100;

void fill(MessagePieces::Piece& piece, std::size_t bytes, int value) {
  std::memset(piece.room(), value, bytes);
  piece.complete = true;
}

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(MessagePieces, BecomeMessagesInTheOrderOfSending) {
  MessagePieces pieces(kPiece);
  MessagePieces::Piece& small = pieces.begin(3, true, kLongest);
  pieces.announce(40, kLongest);
  EXPECT_TRUE(pieces.is_announced());
  MessagePieces::Piece& first = pieces.begin(16, false, kLongest);
  MessagePieces::Piece& second = pieces.begin(16, false, kLongest);
  MessagePieces::Piece& last = pieces.begin(8, true, kLongest);
  EXPECT_FALSE(pieces.is_announced());
  MessagePieces::Piece& empty = pieces.begin(0, true, kLongest);
  empty.complete = true;
  fill(last, 8, 3);
  fill(second, 16, 2);
  fill(first, 16, 1);
  EXPECT_EQ(pieces.take_message(), nullptr);
  fill(small, 3, 9);
  EXPECT_EQ(*pieces.take_message(), Bytes(3, std::byte{9}));
  Bytes whole(16, std::byte{1});
  whole.resize(32, std::byte{2});
  whole.resize(40, std::byte{3});
  EXPECT_EQ(*pieces.take_message(), whole);
  EXPECT_EQ(*pieces.take_message(), Bytes());
  EXPECT_EQ(pieces.take_message(), nullptr);
}

TEST(MessagePieces, RefusesWhatNoRankSends) {
  using Say = std::function<void(MessagePieces&)>;
  const std::vector<std::pair<const char*, Say>> wrong{
      {"announced, and longer than any message",
       [](MessagePieces& pieces) { pieces.announce(101, kLongest); }},
      {"announced, and as long as memory",
       [](MessagePieces& pieces) { pieces.announce(~0ULL, kLongest); }},
      {"announced, though one piece holds it",
       [](MessagePieces& pieces) { pieces.announce(16, kLongest); }},
      {"announced twice",
       [](MessagePieces& pieces) {
         pieces.announce(40, kLongest);
         pieces.announce(40, kLongest);
       }},
      {"a longer piece", [](MessagePieces& pieces) { pieces.begin(17, true, kLongest); }},
      {"a longer message", [](MessagePieces& pieces) { pieces.begin(9, true, 8); }},
      {"a part of none", [](MessagePieces& pieces) { pieces.begin(16, false, kLongest); }},
      {"parts with nothing left for the end",
       [](MessagePieces& pieces) {
         pieces.announce(32, kLongest);
         pieces.begin(16, false, kLongest);
         pieces.begin(16, false, kLongest);
       }},
      {"an end too early",
       [](MessagePieces& pieces) {
         pieces.announce(40, kLongest);
         pieces.begin(16, true, kLongest);
       }},
      {"an end too long", [](MessagePieces& pieces) {
         pieces.announce(20, kLongest);
         pieces.begin(16, false, kLongest);
         pieces.begin(5, true, kLongest);
       }}};
  for (const auto& [what, say] : wrong) {
    EXPECT_EQ(code_of([&] {
                MessagePieces pieces(kPiece);
                say(pieces);
              }),
              ErrorCode::kDataLoss)
        << what;
  }
}

SharedBytes bytes_of(std::size_t size) { return std::make_shared<const Bytes>(size); }

class MailboxTest : public testing::Test {
 protected:
  MailboxTest() {
    mailbox_.join({.rank = 0, .size = 3});
    mailbox_.set_limits(
        {.longest_message = 1000, .wait = {.deadline = 20ms, .progress_limit = 80ms}});
  }
  void arrive(int from, std::size_t size) {
    ASSERT_TRUE(mailbox_.admit(from, size));
    mailbox_.deliver({.from = from, .bytes = bytes_of(size)});
  }
  // Of orders to tell a rank what has been received: none is 0.
  static std::uint64_t told(const Orders& orders, int to) {
    std::uint64_t bytes = 0;
    for (const Tally& tally : orders.received) {
      if (tally.to == to) bytes = tally.bytes;
    }
    return bytes;
  }

  Mailbox mailbox_{100};
};

TEST_F(MailboxTest, TellsWhatWasReceivedOnceAQuarterIs) {
  for (int i = 0; i < 4; ++i) arrive(1, 10);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 0U);
  mailbox_.take(0ms);
  mailbox_.take(0ms);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 0U);
  mailbox_.take(0ms);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 30U);
  mailbox_.take(0ms);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 0U);
  mailbox_.hear_ask(1, 50);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 40U);
  arrive(1, 10);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 0U);
  mailbox_.take(0ms);
  EXPECT_EQ(told(mailbox_.collect(0s), 1), 50U);
}

TEST_F(MailboxTest, HoldsNoMoreOfARankThanItsQueue) {
  arrive(1, 60);
  EXPECT_FALSE(mailbox_.admit(1, 41));
  EXPECT_TRUE(mailbox_.admit(2, 400));  // one alone may be longer
  EXPECT_FALSE(mailbox_.admit(2, 1));
  mailbox_.take(0ms);
  EXPECT_TRUE(mailbox_.admit(1, 100));
}

TEST_F(MailboxTest, BelievesOnlyWhatCanHaveBeenReceived) {
  mailbox_.post({.to = 1, .bytes = bytes_of(70)});
  EXPECT_FALSE(mailbox_.hear_received(1, 71));
  EXPECT_TRUE(mailbox_.hear_received(1, 40));
  EXPECT_EQ(mailbox_.peer(1).unreceived_bytes, 30U);
  EXPECT_FALSE(mailbox_.hear_received(1, 39));
  EXPECT_FALSE(mailbox_.hear_received(2, 1));
}

TEST_F(MailboxTest, PostWaitsForRoomAndAsks) {
  mailbox_.set_limits({.wait = {.deadline = 60s, .progress_limit = 60s}});
  mailbox_.post({.to = 1, .bytes = bytes_of(70)});
  mailbox_.post({.to = 2, .bytes = bytes_of(70)});
  mailbox_.collect(0s);
  std::thread sender([&] { mailbox_.post({.to = 1, .bytes = bytes_of(40)}); });
  const Orders asked = mailbox_.collect(60s);
  ASSERT_EQ(asked.asks.size(), 1U);
  EXPECT_EQ(asked.asks[0].to, 1);
  EXPECT_EQ(asked.asks[0].bytes, 70U);
  EXPECT_TRUE(asked.messages.empty());
  EXPECT_TRUE(mailbox_.hear_received(1, 10));
  sender.join();
  EXPECT_EQ(mailbox_.collect(0s).messages.size(), 1U);
}

// Else ranks that all send first would wait for each other.
TEST_F(MailboxTest, OneThatWaitsTakesInWhatComes) {
  mailbox_.set_limits({.wait = {.deadline = 60s, .progress_limit = 60s}});
  arrive(2, 90);
  mailbox_.hear_ask(2, 500);
  mailbox_.post({.to = 1, .bytes = bytes_of(70)});
  mailbox_.collect(0s);
  std::thread sender([&] { mailbox_.post({.to = 1, .bytes = bytes_of(40)}); });
  EXPECT_EQ(told(mailbox_.collect(60s), 2), 90U);
  arrive(2, 90);
  EXPECT_EQ(told(mailbox_.collect(60s), 2), 180U);
  EXPECT_TRUE(mailbox_.hear_received(1, 70));
  sender.join();
  // Each byte was told of once.
  arrive(2, 60);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(mailbox_.take(0ms));
  EXPECT_EQ(told(mailbox_.collect(0s), 2), 240U);
}

TEST_F(MailboxTest, PostWaitsNoLongerThanTheLimits) {
  mailbox_.post({.to = 1, .bytes = bytes_of(100)});
  EXPECT_EQ(code_of([&] { mailbox_.post({.to = 1, .bytes = bytes_of(1)}); }),
            ErrorCode::kDeadlineExceeded);
}

TEST_F(MailboxTest, KnowsWhoIsSilentAndWhoHasLeft) {
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(mailbox_.misses_one(5ms));
  mailbox_.hear(1);
  mailbox_.hear(2);
  EXPECT_FALSE(mailbox_.misses_one(60s));
  const auto heard = mailbox_.peer(1).heard;
  mailbox_.excuse(60s);
  EXPECT_GE(mailbox_.peer(1).heard, heard);
  EXPECT_LE(mailbox_.peer(1).heard, std::chrono::steady_clock::now());
  EXPECT_FALSE(mailbox_.peer(2).gone);
  mailbox_.see_off(2);
  EXPECT_EQ(mailbox_.peer(2).gone, "has left the network");
}

}  // namespace
}  // namespace tersewire
