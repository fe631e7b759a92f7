// Counter-based random numbers: Philox4x32 with ten rounds (Salmon et al., SC 2011), as
// spec/wire-format.md, "Random numbers", lays it out. Any thread; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// Whose numbers: a draw depends on these and on its own number, and on nothing else.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t sender = 0;  // below 2^24
  std::uint32_t tensor = 0;
  std::uint64_t step = 0;
};

// The words of draws [first, first + n). `first` is a multiple of 4.
void random_words(const RandomStream& stream, std::uint64_t first, std::size_t n,
                  std::uint32_t* out);

// The element of `elems` that a word draws: floor(word * elems / 2^32), whose product may need more
// than 64 bits.
inline std::size_t drawn_elem(std::uint32_t word, std::size_t elems) {
  const std::uint64_t low = elems & 0xFFFFFFFFU;
  return word * (elems >> 32) + (word * low >> 32);
}

}  // namespace tersewire::kernels
