// Payloads in which every element has its place, on their way into tensors: block by block, on the
// pool where there is one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "kernels.h"
#include "partition.h"

namespace tersewire {

// Few enough that the processor reads on while it stores.
inline constexpr std::size_t kOutputBlockElems = 1024;

// How a tensor of `elems` is cut into parts of whole blocks of `block` elements, 1024 or fewer.
inline Partition parts_of_blocks(std::size_t elems, std::size_t block, const ThreadPool* pool) {
  return Partition::of(elems, kMinMovedElems / block * block, pool);
}

// Calls visit(begin, n) for the blocks of a tensor; the last may be shorter.
template <typename Visit>
void visit_blocks(std::size_t elems, std::size_t block, ThreadPool* pool, const Visit& visit) {
  const Partition parts = parts_of_blocks(elems, block, pool);
  run_parts(pool, parts.count(), [&](std::size_t part) {
    for (std::size_t i = parts.begin(part); i < parts.end(part); i += block) {
      visit(i, std::min(block, parts.end(part) - i));
    }
  });
}

// Overwrites `out` with what fill(begin, n, values) writes to `values` for each block, past the
// caches where it would not stay in them.
template <typename Fill>
void fill_blocks(std::span<float> out, std::size_t block, ThreadPool* pool, const Fill& fill) {
  if (out.size() < kernels::kStreamingElems) {
    return visit_blocks(out.size(), block, pool, [&](std::size_t begin, std::size_t n) {
      fill(begin, n, out.data() + begin);
    });
  }
  const Partition parts = parts_of_blocks(out.size(), block, pool);
  run_parts(pool, parts.count(), [&](std::size_t part) {
    alignas(64) std::array<float, kOutputBlockElems> values;
    for (std::size_t i = parts.begin(part); i < parts.end(part); i += block) {
      const std::size_t n = std::min(block, parts.end(part) - i);
      fill(i, n, values.data());
      kernels::copy_streaming(out.data() + i, values.data(), n);
    }
    kernels::end_streaming();
  });
}

}  // namespace tersewire
