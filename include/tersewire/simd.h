// Which instruction set the inner loops use. Results never depend on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tersewire {

// The targets that this machine can run, best first, in lower case: "avx3_dl", "avx3" (AVX-512),
// "avx2", "sse4", "ssse3", and a portable one, "scalar" or "emu128" by compiler. Any thread.
std::vector<std::string> simd_targets();

// The target in use.
std::string simd_target();

// Uses `target` from now on in the whole process; "best" undoes it. Throws kInvalidArgument, naming
// the available targets. For tests and benchmarks: call it while nothing encodes or decodes.
void force_simd_target(std::string_view target);

}  // namespace tersewire
