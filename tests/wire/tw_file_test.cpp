// .tw files in parts. spec/vectors and the fuzz target hold what is accepted and what is not; here
// is what a user of the reader meets.
#include "tersewire/tw_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tests/support/trickle.h"

namespace tersewire {
namespace {

constexpr std::size_t kElems = 22;
constexpr std::size_t kPartValues = 8;

float value_at(std::size_t place) { return 0.25F * static_cast<float>(place) - 2; }

Bytes part_of_file(std::uint32_t part, MessageKind kind = MessageKind::kFile,
                   std::vector<std::uint64_t> shape = {2, 11}) {
  std::vector<float> values;
  for (std::size_t i = part * kPartValues; i < kElems && values.size() < kPartValues; ++i) {
    values.push_back(value_at(i));
  }
  MessageWriter writer({.kind = kind, .sender = 0, .step = 0});
  writer.add({.tensor = 0,
              .part = part,
              .codec = CodecId::kFp32,
              .not_finite = false,
              .description = Description{ElementType::kFloat32, std::move(shape), kPartValues},
              .payload = std::as_bytes(std::span(values))});
  return writer.take();
}

Bytes joined(const std::vector<Bytes>& messages) {
  Bytes file;
  for (const Bytes& message : messages) file.insert(file.end(), message.begin(), message.end());
  return file;
}

Bytes whole_file() { return joined({part_of_file(0), part_of_file(1), part_of_file(2)}); }

std::vector<float> streamed(ByteSource& source) {
  std::vector<float> values;
  TwReader reader(source);
  while (const auto message = reader.next()) {
    const Frame frame = message->frames.front();
    std::vector<float> part(*frame.elems());
    decode(frame.codec, frame.payload, part);
    values.insert(values.end(), part.begin(), part.end());
  }
  EXPECT_FALSE(reader.next()) << "behind the end is the end";
  return values;
}

// The sentence with which both ways to read refuse these bytes.
std::string refusal(ByteView file) {
  std::string sentence;
  EXPECT_THROW(parse_tw_file(file), Error);
  Trickle source(file, 5);
  TwReader reader(source);
  try {
    while (reader.next()) continue;
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    sentence = error.what();
  }
  return sentence;
}

TEST(TwFile, ComesInAnyPieces) {
  const Bytes file = whole_file();
  for (const std::size_t most : {1, 2, 7, 64, 1000}) {
    for (const bool says_left : {true, false}) {
      Trickle source(file, most, says_left);
      const std::vector<float> values = streamed(source);
      ASSERT_EQ(values.size(), kElems);
      for (std::size_t i = 0; i < kElems; ++i) EXPECT_EQ(values[i], value_at(i));
    }
  }
  const auto messages = parse_tw_file(file);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[2].frames.front().elems(), 6U);
}

TEST(TwFile, EveryCutIsRefused) {
  const Bytes file = whole_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(refusal(ByteView(file).first(size)), "") << size;
  }
}

TEST(TwFile, SaysWhatIsWrong) {
  const Bytes first = part_of_file(0);
  const Bytes second = part_of_file(1);
  const Bytes third = part_of_file(2);
  const auto holds = [](const std::vector<Bytes>& messages, const std::string& words) {
    const std::string sentence = refusal(joined(messages));
    EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
  };
  holds({first, second}, "ends after 2 of its 3 parts");
  holds({first, third}, "part 1 of 3, at byte " + std::to_string(first.size()) + ": part 2 stands");
  holds({first, second, third, first}, "more follows its last part");
  holds({second}, "part 1 stands where part 0 belongs");
  holds({first, part_of_file(1, MessageKind::kState)}, "a state follows parts of a file");
  holds({first, part_of_file(1, MessageKind::kFile, {11, 2})}, "another shape");
  Bytes damaged = second;
  damaged.back() ^= std::byte{1};
  holds({first, damaged}, "part 1 of 3");
  holds({first, damaged}, "checksum");
}

// Says how much was asked for at most, beside what it had brought.
class Watched : public ByteSource {
 public:
  explicit Watched(ByteView bytes) : inner_(bytes) {}
  std::size_t read(std::span<std::byte> out) override {
    most_ahead_ = std::max(most_ahead_, out.size());
    return inner_.read(out);
  }
  [[nodiscard]] std::size_t most_ahead() const { return most_ahead_; }

 private:
  Trickle inner_;
  std::size_t most_ahead_ = 0;
};

TEST(TwFile, TakesNoMemoryForWhatIsOnlyPromised) {
  Bytes file = part_of_file(0);
  // A payload length of 2^35 - 1 in the place of 32, which the checksum would tell.
  const std::size_t length_at = file.size() - kPartValues * sizeof(float) - 1;
  ASSERT_EQ(file[length_at], std::byte{kPartValues * sizeof(float)});
  file.resize(length_at);
  for (const int byte : {0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 1, 2, 3}) {
    file.push_back(static_cast<std::byte>(byte));
  }
  Watched source(file);
  TwReader reader(source);
  EXPECT_THROW(reader.next(), Error);
  EXPECT_LE(source.most_ahead(), std::size_t{1} << 20);
}

TEST(TwFile, IsNotWrittenInPartsThatCutNothing) {
  MessageWriter writer({.kind = MessageKind::kFile, .sender = 0, .step = 0});
  Frame frame;
  for (const std::uint64_t part_values : {2U, 6U, 24U, 22U}) {
    frame.description = Description{ElementType::kFloat32, {kElems}, part_values};
    EXPECT_THROW(writer.add(frame), Error) << part_values;
  }
  frame.description = Description{ElementType::kFloat32, {std::uint64_t{1} << 40}, 252};
  EXPECT_THROW(writer.add(frame), Error) << "more than 2^32 parts";
}

}  // namespace
}  // namespace tersewire
