// Packing and parsing. spec/vectors covers the format's every sentence; here is what the C++
// interface adds.
#include "tersewire/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "tersewire/error.h"

namespace tersewire {
namespace {

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Bytes one_push() {
  MessageWriter writer({.kind = MessageKind::kPush, .sender = 3, .step = 258});
  const Bytes payload = bytes_of({0, 0, 0x80, 0x3F});
  writer.add({.tensor = 300,
              .codec = CodecId::kFp32,
              .not_finite = true,
              .description = std::nullopt,
              .payload = payload});
  return writer.take();
}

TEST(Message, IsTheBytesThatTheSpecificationSays) {
  // The checksum was worked out with spec/reference_encoder.py.
  const Bytes expected = bytes_of({'T', 'W', 2, 1, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  const Bytes message = one_push();
  ASSERT_EQ(message.size(), kMessageOverheadBytes + 5 + 4);
  EXPECT_EQ(std::memcmp(message.data(), expected.data(), expected.size()), 0);
  const Bytes frame = bytes_of({0xAC, 0x02, 1, 2, 4, 0, 0, 0x80, 0x3F});
  EXPECT_EQ(std::memcmp(message.data() + kMessageOverheadBytes, frame.data(), frame.size()), 0);
}

TEST(Message, ComesBackAsItWas) {
  const Bytes bytes = one_push();
  const Message message = parse_message(bytes);
  EXPECT_EQ(message.header.kind, MessageKind::kPush);
  EXPECT_EQ(message.header.sender, 3U);
  EXPECT_EQ(message.header.step, 258U);
  ASSERT_EQ(message.frames.size(), 1U);
  EXPECT_EQ(message.frames[0].tensor, 300U);
  EXPECT_TRUE(message.frames[0].not_finite);
  EXPECT_EQ(message.frames[0].payload.size(), 4U);
}

TEST(Message, KeepsWithinItsOverhead) {
  MessageWriter writer({.kind = MessageKind::kPush, .sender = ~0U, .step = ~0ULL});
  const Bytes payload(70000);
  writer.add({.tensor = ~0U,
              .codec = CodecId::kFp32,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  EXPECT_LE(writer.finish().size(),
            payload.size() + kMessageOverheadBytes + kMaxFrameOverheadBytes);
}

TEST(Message, AWriterCanBeUsedAgain) {
  MessageWriter writer({.kind = MessageKind::kPush, .sender = 1, .step = 1});
  writer.finish();
  writer.clear({.kind = MessageKind::kDone, .sender = 2, .step = 9});
  const Message message = parse_message(writer.finish());
  EXPECT_EQ(message.header.kind, MessageKind::kDone);
  EXPECT_EQ(message.header.step, 9U);
}

// Heads are of other lengths where tensors, parts and payloads are larger.
TEST(Message, AnEncodedPayloadIsWhereACopiedOneWouldBe) {
  MessageWriter copied({.kind = MessageKind::kPush, .sender = 1, .step = 2});
  MessageWriter encoded({.kind = MessageKind::kPush, .sender = 1, .step = 2});
  std::uint32_t number = 0;
  for (const std::size_t bytes : {0, 4, 127, 128, 20000, 20000, 16383, 3, 2097152, 0, 130}) {
    Bytes payload(bytes);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 7 + bytes);
    const std::uint32_t tensor = 40 * ++number;
    const std::uint32_t part = number % 3 == 0 ? 200 : 0;
    const bool not_finite = number % 2 == 0;
    copied.add({.tensor = tensor,
                .part = part,
                .codec = CodecId::kFp32,
                .not_finite = not_finite,
                .description = std::nullopt,
                .payload = payload});
    const Frame frame = encoded.add_encoded(tensor, part, [&](Bytes& out) {
      out.insert(out.end(), payload.begin(), payload.end());
      return Encoded{.codec = CodecId::kFp32, .not_finite = not_finite};
    });
    EXPECT_TRUE(std::ranges::equal(frame.payload, payload)) << bytes;
    EXPECT_EQ(frame.not_finite, not_finite);
  }
  EXPECT_EQ(encoded.take(), copied.take());
}

TEST(Message, IsAsBeforeWhereEncodingFails) {
  MessageWriter writer({.kind = MessageKind::kPush, .sender = 3, .step = 258});
  const auto fails = [](Bytes& out) -> Encoded {
    out.resize(out.size() + 100);
    throw Error(ErrorCode::kInvalidArgument, "no");
  };
  EXPECT_THROW(writer.add_encoded(1, 0, fails), Error);
  const Bytes payload = bytes_of({0, 0, 0x80, 0x3F});
  writer.add({.tensor = 300,
              .codec = CodecId::kFp32,
              .not_finite = true,
              .description = std::nullopt,
              .payload = payload});
  EXPECT_EQ(writer.take(), one_push());
}

TEST(Message, HoldsNoMoreThanTwiceWhatItSays) {
  MessageWriter writer({});
  for (int step = 0; step < 3; ++step) {
    writer.clear({.kind = MessageKind::kPush, .sender = 0, .step = 1});
    writer.add_encoded(0, 0, [](Bytes& out) {
      const std::size_t start = out.size();
      out.resize(start + 100000);  // an encoder's worst case
      out.resize(start + 400);
      return Encoded{.codec = CodecId::kFp32};
    });
    const Bytes message = writer.take();
    EXPECT_LE(message.capacity(), 2 * message.size());
    EXPECT_EQ(parse_message(message).frames.front().payload.size(), 400U);
  }
}

TEST(Message, OfOnesOwnHasNoChecksum) {
  MessageWriter writer({.kind = MessageKind::kDone, .sender = 2, .step = 9});
  const Bytes bytes = writer.take(true);
  EXPECT_EQ(parse_message(bytes, true).header.step, 9U);
  EXPECT_THROW(parse_message(bytes), Error);
}

TEST(Message, RefusesToDescribeWhatTheFormatCannotHold) {
  MessageWriter writer({.kind = MessageKind::kFile, .sender = 0, .step = 0});
  Frame frame;
  frame.description =
      Description{.element_type = ElementType::kFloat32, .dims = {1U << 30, 1U << 30}};
  EXPECT_THROW(writer.add(frame), Error);
  frame.description->dims.assign(33, 1);
  EXPECT_THROW(writer.add(frame), Error);
  // The writer is as before.
  frame.description->dims = {1};
  const Bytes payload(4);
  frame.payload = payload;
  writer.add(frame);
  EXPECT_EQ(parse_message(writer.finish()).frames.size(), 1U);
}

TEST(Message, FinitenessIsABitForEachTensorOfABucket) {
  std::vector<bool> not_finite(33, false);
  not_finite[1] = not_finite[8] = not_finite[32] = true;
  const Bytes bytes = finiteness_message(3, 258, 5, not_finite);
  const Bytes frame = bytes_of({5, 1, 0, 8, 2, 1, 0, 0, 1, 0, 0, 0});
  ASSERT_EQ(bytes.size(), kMessageOverheadBytes + frame.size());
  EXPECT_EQ(std::memcmp(bytes.data() + kMessageOverheadBytes, frame.data(), frame.size()), 0);

  const Message message = parse_message(bytes);
  EXPECT_EQ(message.header.kind, MessageKind::kFiniteness);
  EXPECT_EQ(finiteness_in(message, 33), not_finite);
  EXPECT_EQ(finiteness_in(message, 64).size(), 64U);
  for (const std::size_t tensors : {0, 1, 32, 65}) {
    EXPECT_THROW(finiteness_in(message, tensors), Error) << tensors << " tensors";
  }
}

TEST(Message, EveryFlippedBitAndEveryCutIsNoticed) {
  const Bytes good = one_push();
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(parse_message(bad), Error) << "bit " << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(parse_message(ByteView(good).first(size)), Error) << size << " bytes";
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(parse_message(longer), Error);
}

}  // namespace
}  // namespace tersewire
