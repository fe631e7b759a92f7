// Stochastic 3-value quantization (TernGrad section 3.1; spec/wire-format.md, "Codecs 3 and 4").
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

struct StochasticScale {
  float scaler;  // above 0, finite; no |T| that counts is larger
  float limit;   // magnitudes above it count as it; infinity: none does
};

// The digit of T = input[i] + residual[i] (input[i] where residual is null) is its sign with the
// probability min(|T|, limit) / scaler, else 0; words[i] is its random word. Bit i (LSB first) of
// `sent` is set where the digit is not 0, of `negative` where T < 0; both have room for
// (n + 63) / 64 words, unused bits become 0. The residual becomes T - scaler * digit. Returns
// whether any digit is not 0. Any thread; pointers need no alignment.
bool quantize_stochastic(const float* input, float* residual, std::size_t n,
                         const StochasticScale& scale, const std::uint32_t* words,
                         std::uint64_t* sent, std::uint64_t* negative);

}  // namespace tersewire::kernels
