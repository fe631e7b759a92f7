// Codes as digits of 64-bit numbers: the dense body of the levels payload (spec/wire-format.md,
// "Codecs 5 and 6"). Plain loops, no vectors. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// How many codes of a base fit into a word, and what reading them takes.
class LevelWords {
 public:
  // base is odd, 3 to 131071.
  explicit LevelWords(std::uint32_t base);

  [[nodiscard]] std::size_t digits() const { return digits_; }

  // Packs words * digits() codes.
  void pack(const std::uint32_t* codes, std::size_t words, std::uint8_t* out) const;
  // Whether every word stands for digits() codes and nothing more.
  [[nodiscard]] bool valid(const std::uint8_t* bytes, std::size_t words) const;
  // Unpacks as many codes from words that are valid.
  void unpack(const std::uint8_t* bytes, std::size_t words, std::uint32_t* codes) const;

 private:
  // So many digits that they make a number below 2^32: read by multiplying what they are of the
  // next power, a fraction of 64 bits.
  struct Chunk {
    explicit Chunk(std::uint32_t base, std::size_t digits);

    // Takes the chunk, as a number, off the low end of a word.
    std::uint64_t take(std::uint64_t& word) const;
    void write_digits(std::uint64_t number, std::uint32_t base, std::uint32_t* codes) const;

    std::size_t digits;
    std::uint64_t power;       // of the base
    std::uint64_t reciprocal;  // 2^64 / power, rounded down
  };

  std::uint32_t base_;
  std::size_t digits_;
  Chunk chunk_;
  Chunk last_;         // what is left of a word after whole chunks
  std::uint64_t end_;  // the first number that is none: base to the digits
};

}  // namespace tersewire::kernels
