// Text as samples: pieces of equal length, every character of which has the next one as its label.
// Functions here have no state: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/samples.h"

namespace tersewire::trainer {

// Characters of a sample where nobody says more: as Karpathy's char-rnn, which AdaComp's LSTM is,
// has them by default.
inline constexpr std::size_t kTextSampleLength = 50;
// No text is longer.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

// A run of text, as pieces of `length` characters that follow one another. What is left at the end,
// fewer than a piece and its last label need, is not used.
class TextSamples final : public Samples {
 public:
  // `characters` by number, below `classes`; one more than a piece at least.
  TextSamples(std::vector<std::uint8_t> characters, int classes, std::size_t length);

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override {
    return (characters_.size() - 1) / length_;
  }
  void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const override;
  [[nodiscard]] std::uint64_t checksum() const override;

 private:
  std::vector<std::uint8_t> characters_;
  std::size_t length_;
  SampleKind kind_;
};

// A text cut in two: the last tenth of it is the test. A character is a byte; those that occur are
// numbered in the order of their bytes.
//   name    what the sentence of an error calls it, and of the splits
//   length  characters of a sample, at least 1
// Throws kDataLoss where the test would be shorter than a piece, where nothing but one character
// occurs, and for a byte of 0, which no text has. Cost: two passes; one copy.
DataSplits split_text(std::span<const std::uint8_t> text, const std::string& name,
                      std::size_t length = kTextSampleLength);

}  // namespace tersewire::trainer
