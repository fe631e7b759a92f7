// Which elements of T = input + residual (input alone where residual is null) are sent: those that
// reach the largest of their bin (AdaComp, Algorithm 2), or a limit that holds for all. Selected
// elements are bits of words: bit e mod 64 of word e / 64 is element e's, unused bits become 0.
//
// Pointers need no alignment. None allocates or throws. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shape.h"

namespace tersewire::kernels {

inline constexpr std::size_t kWordElems = 64;

// Words for the bits of n elements.
constexpr std::size_t selection_words(std::size_t n) { return divide_up(n, kWordElems); }

// maxima[i] becomes the largest |T| of elements [i * bin, (i + 1) * bin); the last bin may be
// short. Returns the largest of all as max_abs_sum_bits() does.
std::uint32_t bin_maxima(const float* input, const float* residual, std::size_t n, std::size_t bin,
                         float* maxima);

// What select_in_bins() goes by.
struct BinRule {
  const float* maxima;  // of every bin of the tensor
  std::size_t bin;
  float gain;   // the input's weight in H = T + gain * input
  float scale;  // what is sent for an element, with the sign of T
};

// Selects the elements of [begin, end) for which |H| reaches the largest of the bin and T is not 0.
// The residual becomes T, or T - scale (T + scale below 0) where selected. `negative` says where
// T < 0, selected or not. begin is a multiple of kWordElems; all pointers are those of the tensor.
void select_in_bins(const float* input, float* residual, std::size_t begin, std::size_t end,
                    const BinRule& rule, std::uint64_t* selected, std::uint64_t* negative);

// Selects the elements for which |T| reaches limit, which is above 0. Returns the largest |T| as
// max_abs_sum_bits() does.
std::uint32_t select_above(const float* input, const float* residual, std::size_t n, float limit,
                           std::uint64_t* selected);

// Writes the numbers of the bits that are set in `words`, ascending, and returns how many there
// are. `places` needs room for kWordElems a word and kListSlack, and may be written to that far.
inline constexpr std::size_t kListSlack = 6;
std::size_t list_selected(const std::uint64_t* words, std::size_t n, std::uint32_t* places);

// The number of bits that are set in `bytes`.
std::uint64_t count_bits(const std::uint8_t* bytes, std::size_t n);

}  // namespace tersewire::kernels
