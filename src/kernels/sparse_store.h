// Blocks of mostly zeros on their way into memory.
#pragma once

#include <cstddef>

namespace tersewire::kernels {

// target[i] = block[i], then block[i] = 0. `streaming`: past the caches, for targets too large to
// stay in them, as copy_streaming() in kernels.h does; target is then aligned to 64 bytes except
// for the tensor's first block. Allocates nothing. Any thread.
void store_block(float* target, float* block, std::size_t n, bool streaming);

}  // namespace tersewire::kernels
