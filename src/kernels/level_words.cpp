#include "level_words.h"

#include <hwy/base.h>

#include <cstring>
#include <limits>

namespace tersewire::kernels {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kLargestWord = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kLargestChunk = std::numeric_limits<std::uint32_t>::max();

// The most digits that make no number above `largest`. No power of an odd base is 2^32 or 2^64.
std::size_t digits_within(std::uint32_t base, std::uint64_t largest) {
  std::size_t digits = 0;
  for (; largest >= base; largest /= base) ++digits;
  return digits;
}

std::uint64_t power_of(std::uint32_t base, std::size_t exponent) {
  std::uint64_t power = 1;
  for (std::size_t i = 0; i < exponent; ++i) power *= base;
  return power;
}

std::uint64_t high_product(std::uint64_t a, std::uint64_t b, std::uint64_t& low) {
  std::uint64_t high;
  low = hwy::Mul128(a, b, &high);
  return high;
}

std::uint64_t load_word(const std::uint8_t* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, kWordBytes);
  return word;
}

}  // namespace

LevelWords::Chunk::Chunk(std::uint32_t base, std::size_t digit_count)
    : digits(digit_count), power(power_of(base, digit_count)), reciprocal(kLargestWord / power) {}

std::uint64_t LevelWords::Chunk::take(std::uint64_t& word) const {
  // The quotient or one less, because the reciprocal is rounded down.
  std::uint64_t unused;
  std::uint64_t quotient = high_product(word, reciprocal, unused);
  std::uint64_t rest = word - quotient * power;
  if (rest >= power) {
    rest -= power;
    ++quotient;
  }
  word = quotient;
  return rest;
}

void LevelWords::Chunk::write_digits(std::uint64_t number, std::uint32_t base,
                                     std::uint32_t* codes) const {
  // Rounded up, by less than number / 2^64: times power^2 < 2^64 that never reaches a digit.
  std::uint64_t fraction = number * (reciprocal + 1);
  for (std::size_t k = digits; k-- > 0;) {
    codes[k] = static_cast<std::uint32_t>(high_product(fraction, base, fraction));
  }
}

LevelWords::LevelWords(std::uint32_t base)
    : base_(base),
      digits_(digits_within(base, kLargestWord)),
      chunk_(base, digits_within(base, kLargestChunk)),
      last_(base, digits_ % chunk_.digits),
      end_(power_of(base, digits_)) {}

void LevelWords::pack(const std::uint32_t* codes, std::size_t words, std::uint8_t* out) const {
  const std::uint64_t square = power_of(base_, 2);
  for (std::size_t i = 0; i < words; ++i, codes += digits_) {
    std::uint64_t word = 0;
    std::size_t k = digits_;
    // Two at a time: each step waits for the one before it.
    for (; k >= 2; k -= 2) {
      word = word * square + (std::uint64_t{codes[k - 1]} * base_ + codes[k - 2]);
    }
    if (k > 0) word = word * base_ + codes[0];
    std::memcpy(out + i * kWordBytes, &word, kWordBytes);
  }
}

bool LevelWords::valid(const std::uint8_t* bytes, std::size_t words) const {
  bool valid = true;
  for (std::size_t i = 0; i < words; ++i) valid &= load_word(bytes + i * kWordBytes) < end_;
  return valid;
}

void LevelWords::unpack(const std::uint8_t* bytes, std::size_t words, std::uint32_t* codes) const {
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word = load_word(bytes + i * kWordBytes);
    for (std::size_t k = chunk_.digits; k <= digits_; k += chunk_.digits, codes += chunk_.digits) {
      chunk_.write_digits(chunk_.take(word), base_, codes);
    }
    last_.write_digits(word, base_, codes);
    codes += last_.digits;
  }
}

}  // namespace tersewire::kernels
