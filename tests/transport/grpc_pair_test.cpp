// What one node sends to another as a stream with positions, against a peer that says what it
// likes.
#include "grpc_pair.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "expect_error.h"

namespace tersewire {
namespace {

SharedBytes message(std::size_t size) { return std::make_shared<const Bytes>(size); }

TEST(SendingSide, GoesOnWhereThePeerSaysThatItIs) {
  SendingSide sending;
  sending.put(message(1000));
  sending.put(message(0));
  sending.put(message(10));
  while (sending.next(300)) continue;
  const std::uint64_t second = 1000 + kMessageCost;
  const std::uint64_t third = second + kMessageCost;
  for (const std::uint64_t received : {std::uint64_t{0}, std::uint64_t{999}, second, third}) {
    sending.hear(received, 0);
    sending.rewind();
    const auto chunk = sending.next(5000);
    ASSERT_TRUE(chunk) << received;
    EXPECT_EQ(chunk->position, received);
    EXPECT_EQ(chunk->offset + chunk->bytes, chunk->message->size());
  }
  while (sending.next(300)) continue;
  sending.hear(third + 10 + kMessageCost, 0);
  EXPECT_TRUE(sending.is_delivered());
}

TEST(SendingSide, RefusesAPeerThatHasWhatIsNoPartOfAMessage) {
  const std::uint64_t second = 1000 + kMessageCost;
  for (const std::uint64_t received :
       {std::uint64_t{1000}, std::uint64_t{1001}, second - 1, second + 1, second + 9999}) {
    SendingSide sending;
    sending.put(message(1000));
    sending.put(message(0));
    while (sending.next(300)) continue;
    expect_error(ErrorCode::kDataLoss, "run one version", [&] { sending.hear(received, 0); });
  }
}

}  // namespace
}  // namespace tersewire
