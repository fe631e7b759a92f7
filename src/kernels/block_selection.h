// Ternary digits of a block under a limit and a magnitude of its own (spec/wire-format.md, "Codec
// 2", blocks): which of its values are sent, and what is left of them. T = lead * input + residual,
// the product rounded first; without the residual where that is null. n is at most kSumBlockElems
// (surveys.h). Bit e mod 64 of word e / 64 is element e's, unused bits become 0.
//
// Pointers need no alignment. None allocates or throws. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "surveys.h"

namespace tersewire::kernels {

// Stores T. first: the sum of |T|, a block of spec/wire-format.md, "Sums".
BlockSurvey survey_block(const float* input, const float* residual, std::size_t n, float lead,
                         float* t);

// Selects the elements for which |T| reaches limit, which is above 0. first: the sum of |T| over
// them, as above; count: their number.
BlockSurvey select_block(const float* t, std::size_t n, float limit, std::uint64_t* selected);

// `negative` says where T < 0, selected or not. The residual, where there is one, becomes T, and
// where selected T - value (T + value below 0); then what the lead has added is taken back.
void settle_block(const float* input, float* residual, std::size_t n, float lead, float value,
                  const std::uint64_t* selected, std::uint64_t* negative);

}  // namespace tersewire::kernels
