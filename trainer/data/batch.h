// What the data hands to the networks: samples, a batch at a time. No libtorch; C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tersewire::trainer {

// What one sample is.
struct SampleKind {
  std::vector<std::int64_t> shape;  // of its input: {1, 28, 28} for an image; for text {characters}
  int classes = 0;                  // for text: how many different characters there are
  // Inputs are characters by number, and every one has a label: the character that follows.
  bool text = false;

  friend bool operator==(const SampleKind& a, const SampleKind& b) {
    return a.shape == b.shape && a.classes == b.classes && a.text == b.text;
  }
  friend bool operator!=(const SampleKind& a, const SampleKind& b) { return !(a == b); }
};

// Samples as a network takes them, one after the other. Whoever makes a batch keeps its memory.
struct Batch {
  std::size_t samples = 0;
  std::vector<std::int64_t> shape;       // of one sample's input
  const float* values = nullptr;         // inputs that are numbers, normalized
  const std::int64_t* tokens = nullptr;  // inputs that are text
  const std::int64_t* labels = nullptr;
  std::size_t label_count = 0;  // one a sample, of text one a character
};

}  // namespace tersewire::trainer
