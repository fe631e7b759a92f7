// How work is cut for threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tersewire/thread_pool.h"

namespace tersewire {

// Elements that are worth waking a thread for where a loop does little to each: 2^20 take a core a
// fifth of a millisecond, and waking another takes 50 us in a virtual machine (evidence/pytorch,
// "What a hook adds on one rank").
inline constexpr std::size_t kMinMovedElems = std::size_t{1} << 20;

// Splits n items into parts of equal size, a multiple of `unit` items except the last. What runs
// in parallel is cut so.
struct Partition {
  std::size_t items;
  std::size_t part;

  static Partition of(std::size_t items, std::size_t unit, const ThreadPool* pool);
  [[nodiscard]] std::size_t count() const { return items == 0 ? 1 : (items + part - 1) / part; }
  [[nodiscard]] std::size_t begin(std::size_t i) const { return i * part; }
  [[nodiscard]] std::size_t end(std::size_t i) const {
    return begin(i) + part < items ? begin(i) + part : items;
  }
};

// Calls task(i) for i below count, on the pool where there is one. Allocates nothing.
template <typename Task>
void run_parts(ThreadPool* pool, std::size_t count, Task&& task) {
  if (pool != nullptr && count > 1) return pool->run(count, std::ref(task));
  for (std::size_t i = 0; i < count; ++i) task(i);
}

// Makes `largest` at least `value`, beside other threads that do the same.
inline void raise_to(std::atomic<std::uint32_t>& largest, std::uint32_t value) {
  std::uint32_t seen = largest.load();
  while (seen < value && !largest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace tersewire
