// What an encoder hands to the functions that append a payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tersewire/thread_pool.h"

namespace tersewire {

// A tensor that is finite, on its way into a payload.
struct EncodeCall {
  const float* input;  // with its lead, unless the codec counts that itself
  float* residual;     // null: none is kept
  std::size_t elems;
  float largest;  // magnitude of residual + input
  std::uint64_t step;
  ThreadPool* pool;
};

}  // namespace tersewire
