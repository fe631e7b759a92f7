#include "trainer/data/text_samples.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trainer/data/data_files.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

constexpr std::size_t kTestPart = 10;  // one of so many

void check_length(std::span<const std::uint8_t> text, const std::string& name, std::size_t length) {
  const std::size_t least = kTestPart * (length + 1);
  if (text.size() >= least) return;
  refuse_file(name, "a text of " + std::to_string(text.size()) +
                        " characters is too short to train on and test with; give one of " +
                        std::to_string(least) + " or more");
}

struct Alphabet {
  std::array<std::uint8_t, 256> number_of{};  // of bytes that occur
  int size = 0;
};

Alphabet alphabet_of(std::span<const std::uint8_t> text, const std::string& name) {
  std::array<bool, 256> occurs{};
  for (const std::uint8_t byte : text) occurs[byte] = true;
  if (occurs[0]) {
    const auto at = std::ranges::find(text, 0) - text.begin();
    refuse_file(name, "byte " + std::to_string(at) +
                          " is 0, which no text has; give a file of text, or the "
                          "directory of MNIST's or CIFAR-10's files");
  }
  Alphabet alphabet;
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (occurs[byte]) alphabet.number_of[byte] = static_cast<std::uint8_t>(alphabet.size++);
  }
  if (alphabet.size < 2) {
    refuse_file(name,
                "it repeats one character, which leaves nothing to learn; give a file of text");
  }
  return alphabet;
}

}  // namespace

TextSamples::TextSamples(std::vector<std::uint8_t> characters, int classes, std::size_t length)
    : characters_(std::move(characters)),
      length_(length),
      kind_{.shape = {static_cast<std::int64_t>(length)}, .classes = classes, .text = true} {}

void TextSamples::append(std::size_t index, CounterRandom& /*draws*/, BatchMemory& batch) const {
  const auto piece = std::span(characters_).subspan(index * length_, length_ + 1);
  batch.tokens.insert(batch.tokens.end(), piece.begin(), piece.end() - 1);
  batch.labels.insert(batch.labels.end(), piece.begin() + 1, piece.end());
}

std::uint64_t TextSamples::checksum() const {
  return XXH64(characters_.data(), characters_.size(), static_cast<XXH64_hash_t>(kind_.classes));
}

DataSplits split_text(std::span<const std::uint8_t> text, const std::string& name,
                      std::size_t length) {
  check_length(text, name, length);
  const Alphabet alphabet = alphabet_of(text, name);
  const auto samples_of = [&](std::span<const std::uint8_t> part) {
    std::vector<std::uint8_t> characters(part.size());
    std::ranges::transform(part, characters.begin(),
                           [&](std::uint8_t byte) { return alphabet.number_of[byte]; });
    return std::make_shared<TextSamples>(std::move(characters), alphabet.size, length);
  };
  const std::size_t test = text.size() / kTestPart;
  return {.train = samples_of(text.first(text.size() - test)),
          .test = samples_of(text.last(test)),
          .name = name};
}

}  // namespace tersewire::trainer
