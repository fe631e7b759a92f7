// Ternary digits of a block under a limit and a magnitude of its own (spec/wire-format.md, "Codec
// 2", blocks): which of its values are sent, and what is left of them. T = input + residual (input
// alone where residual is null). Bit e mod 64 of word e / 64 is element e's, unused bits become 0.
//
// Pointers need no alignment. None allocates or throws. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// Selects the elements for which |T| reaches limit, which is above 0. n is at most kSumBlockElems
// (surveys.h). Returns the sum of |T| over them, as a block of spec/wire-format.md, "Sums".
double select_block(const float* input, const float* residual, std::size_t n, float limit,
                    std::uint64_t* selected);

// `negative` says where T < 0, selected or not. The residual, where there is one, becomes T, and
// where selected T - value (T + value below 0).
void settle_block(const float* input, float* residual, std::size_t n, float value,
                  const std::uint64_t* selected, std::uint64_t* negative);

}  // namespace tersewire::kernels
