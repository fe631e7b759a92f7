// One bit a value: what of T = input + residual (input alone where residual is null) is below 0.
// Bit i is bit (i mod 8) of byte i / 8; bits past n are 0. Any alignment, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// What a set bit and a clear one stand for.
struct SignValues {
  float plus;
  float minus;
};

// Writes (n + 7) / 8 bytes of bits; the residual becomes T less what its bit stands for.
void pack_signs(const float* input, float* residual, std::size_t n, const SignValues& values,
                std::uint8_t* bits);

// out[i] becomes what bit i stands for ...
void unpack_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out);
// ... or has it added.
void add_signs(const std::uint8_t* bits, std::size_t n, const SignValues& values, float* out);

}  // namespace tersewire::kernels
