// Text as samples, and the embedded text.
#include "trainer/data/text_samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "data_test_support.h"
#include "trainer/data/embedded_text.h"

namespace tersewire::trainer {
namespace {

ByteVector bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

DataSplits split(std::string_view text) { return split_text(bytes_of(text), "text"); }

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text.substr(0, bytes);
}

using Numbers = std::vector<std::int64_t>;

struct Piece {
  Numbers tokens;
  Numbers labels;
};

Piece piece_of(const Samples& samples, std::uint32_t index) {
  BatchMaker batches(samples, 1, 0);
  const Batch& batch = batches.make({&index, 1}, 0);
  EXPECT_EQ(batch.samples, 1U);
  EXPECT_EQ(batch.label_count, kTextSampleLength);
  return {{batch.tokens, batch.tokens + kTextSampleLength},
          {batch.labels, batch.labels + kTextSampleLength}};
}

// 60 characters that begin with `start`.
std::string line(std::string_view start) { return std::string(start) + std::string(60, '.'); }

TEST(SplitText, NumbersCharactersInTheOrderOfTheirBytes) {
  // '.' 0, 'a' 1, 'b' 2, 'z' 3, 0xE9 4.
  const DataSplits splits = split(line("z\xE9"
                                       "ab") +
                                  repeated(".", 700));
  EXPECT_EQ(splits.train->kind(), (SampleKind{{50}, 5, true}));
  EXPECT_EQ(splits.test->kind(), splits.train->kind());
  EXPECT_EQ(splits.name, "text");
  const Piece piece = piece_of(*splits.train, 0);
  Numbers expected(51, 0);
  std::ranges::copy(Numbers{3, 4, 1, 2}, expected.begin());
  EXPECT_EQ(piece.tokens, Numbers(expected.begin(), expected.end() - 1));
  EXPECT_EQ(piece.labels, Numbers(expected.begin() + 1, expected.end()));
}

TEST(SplitText, LastTenthIsTheTestAndPiecesFollowOneAnother) {
  // 2000 different places: a counter of two characters.
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += static_cast<char>('A' + i / 32);
    text += static_cast<char>(' ' + i % 32);
  }
  const DataSplits splits = split(text);
  EXPECT_EQ(splits.train->size(), 35U);  // (1800 - 1) / 50
  EXPECT_EQ(splits.test->size(), 3U);    // (200 - 1) / 50
  const std::set<char> alphabet(text.begin(), text.end());
  EXPECT_EQ(splits.train->kind().classes, static_cast<int>(alphabet.size()));
  const std::string characters(alphabet.begin(), alphabet.end());
  const auto text_of = [&](const Numbers& numbers) {
    std::string out;
    for (const std::int64_t number : numbers) out += characters[static_cast<std::size_t>(number)];
    return out;
  };
  for (const std::uint32_t i : {0U, 1U, 34U}) {
    const Piece piece = piece_of(*splits.train, i);
    EXPECT_EQ(text_of(piece.tokens), text.substr(std::size_t{50} * i, 50));
    EXPECT_EQ(text_of(piece.labels), text.substr(std::size_t{50} * i + 1, 50));
  }
  EXPECT_EQ(text_of(piece_of(*splits.test, 2).labels), text.substr(1800 + 101, 50));
}

TEST(SplitText, PiecesAreAsLongAsTheNetworkTakesThem) {
  const DataSplits splits = split_text(bytes_of(repeated("abc", 1300)), "text", 64);
  EXPECT_EQ(splits.train->kind(), (SampleKind{{64}, 3, true}));
  EXPECT_EQ(splits.train->size(), 18U);  // (1170 - 1) / 64
  EXPECT_EQ(splits.test->size(), 2U);    // (130 - 1) / 64
  BatchMaker batches(*splits.train, 1, 0);
  const std::uint32_t second = 1;
  const Batch& batch = batches.make({&second, 1}, 0);
  EXPECT_EQ(batch.label_count, 64U);
  EXPECT_EQ(batch.tokens[0], 64 % 3);
  EXPECT_EQ(batch.labels[63], 128 % 3);
  expect_error(ErrorCode::kDataLoss, "too short",
               [] { split_text(bytes_of(repeated("abc", 649)), "text", 64); });
}

TEST(SplitText, ACharacterOfTheTestAloneHasANumberToo) {
  EXPECT_EQ(split(repeated("ab", 600) + "c").train->kind().classes, 3);
}

TEST(SplitText, ShortestTextHasOnePieceToTestWith) {
  const DataSplits splits = split(repeated("abc", 510));
  EXPECT_EQ(splits.train->size(), 9U);
  EXPECT_EQ(splits.test->size(), 1U);
}

TEST(SplitText, WhatIsNoTextIsRefused) {
  const auto refused = [](const std::string& text, const std::string& part) {
    expect_error(ErrorCode::kDataLoss, part, [&] { split(text); });
  };
  refused("", "text: a text of 0 characters is too short");
  refused(repeated("abc", 509), "509 characters is too short");
  refused(repeated("a", 600), "it repeats one character");
  refused(repeated("ab", 600) + '\0' + "a", "byte 600 is 0");
}

TEST(SplitText, ChecksumDependsOnEveryCharacter) {
  std::string text = repeated("abc", 600);
  const std::uint64_t whole = split(text).train->checksum();
  EXPECT_EQ(split(text).train->checksum(), whole);
  std::swap(text[100], text[101]);
  EXPECT_NE(split(text).train->checksum(), whole);
}

TEST_F(DataFiles, AnyFileOfTextLoads) {
  const std::string path = write("any.txt", bytes_of(repeated("to be or not to be, ", 2000)));
  const DataSplits splits = load_data(path, 1);
  EXPECT_EQ(splits.name, path);
  EXPECT_EQ(splits.train->kind().classes, 8);
  EXPECT_EQ(splits.train->size(), 35U);
  expect_error(ErrorCode::kInvalidArgument, "crop-flip is for images",
               [&] { load_data(path, 1, "crop-flip"); });
  expect_error(ErrorCode::kInvalidArgument, "unknown augmentation 'x'",
               [&] { load_data(path, 1, "x"); });
}

TEST_F(DataFiles, AHugeTextIsRefusedBeforeItIsRead) {
  const std::string path = write("huge.txt", {'a'});
  std::filesystem::resize_file(path, kMaxTextBytes + 1);
  expect_error(ErrorCode::kDataLoss, path + ": it has 1073741825 bytes",
               [&] { load_data(path, 1); });
}

TEST(GenerateText, StartsAsKnown) {
  EXPECT_EQ(generate_text(1, 111),
            "SAILOR:\nThose kettles of those little lamps come home.\n"
            "The little neighbour of those strange strangers has gone");
}

TEST(GenerateText, DependsOnTheSeedAlone) {
  const std::string text = generate_text(1, 5000);
  EXPECT_EQ(generate_text(1, 3000), text.substr(0, 3000));
  EXPECT_NE(generate_text(2, 5000), text);
  EXPECT_EQ(generate_text(1, 0), "");
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

TEST(GenerateText, HoldsFewWordsAndFewCharacters) {
  const std::string text = generate_text(3, kEmbeddedTextBytes);
  EXPECT_EQ(text.size(), kEmbeddedTextBytes);
  const std::string allowed = " \n.,:?";
  EXPECT_TRUE(std::ranges::all_of(text, [&](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || allowed.find(c) != std::string::npos;
  }));
  std::vector<std::string> words = words_of(text.substr(0, text.rfind('\n')));
  const std::set<std::string> different(words.begin(), words.end());
  EXPECT_GT(different.size(), 70U);
  EXPECT_LT(different.size(), 120U);
}

// Bits a character of the last tenth, by counts of what followed the `order` characters before it
// in the rest.
double bits_by_counting(const std::string& text, std::size_t order) {
  const std::size_t train = text.size() - text.size() / 10;
  std::map<std::string, std::array<double, 128>> counts;
  for (std::size_t i = order; i < train; ++i) {
    ++counts[text.substr(i - order, order)][static_cast<std::size_t>(text[i])];
  }
  double bits = 0;
  for (std::size_t i = train; i < text.size(); ++i) {
    const auto& following = counts[text.substr(i - order, order)];
    const double sum = std::accumulate(following.begin(), following.end(), 0.0);
    bits -= std::log2((following[static_cast<std::size_t>(text[i])] + 0.02) / (sum + 128 * 0.02));
  }
  return bits / static_cast<double>(text.size() - train);
}

// More context tells more, also beyond words: a model that remembers must be able to do better.
TEST(GenerateText, HasStructureToLearn) {
  const std::string text = generate_text(4, kEmbeddedTextBytes);
  EXPECT_GT(bits_by_counting(text, 0), 4.0);
  EXPECT_LT(bits_by_counting(text, 2), 2.0);
  EXPECT_LT(bits_by_counting(text, 6), 1.0);
}

TEST(LoadData, EmbeddedTextIsTheGeneratedOne) {
  const DataSplits splits = load_data("embedded-text", 5);
  EXPECT_EQ(splits.name, "embedded-text");
  const DataSplits again = split_text(bytes_of(generate_text(5, kEmbeddedTextBytes)), "text");
  EXPECT_EQ(splits.train->checksum(), again.train->checksum());
  EXPECT_EQ(splits.test->checksum(), again.test->checksum());
  EXPECT_NE(load_data("embedded-text", 6).train->checksum(), splits.train->checksum());
}

TEST(TinyShakespeare, HasItsCharacters) {
  const auto path = shared_data() / "tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const DataSplits splits = load_data(path.string(), 1);
  EXPECT_EQ(splits.train->kind().classes, 65);
  EXPECT_EQ(splits.train->size(), 20077U);  // (1115394 - 111539 - 1) / 50
  EXPECT_EQ(splits.test->size(), 2230U);
  // "First": F is the 19th of the characters that occur, after \n, space, !$&',-.3:;? and A to E.
  const Piece piece = piece_of(*splits.train, 0);
  EXPECT_EQ(Numbers(piece.tokens.begin(), piece.tokens.begin() + 5), (Numbers{18, 47, 56, 57, 58}));
}

}  // namespace
}  // namespace tersewire::trainer
