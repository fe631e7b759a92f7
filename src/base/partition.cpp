#include "partition.h"

#include <algorithm>

namespace tersewire {

Partition Partition::of(std::size_t items, std::size_t unit, const ThreadPool* pool) {
  const std::size_t threads = pool != nullptr ? pool->threads() : 1;
  const std::size_t even = (items + threads - 1) / threads;
  const std::size_t part = (std::max<std::size_t>(even, 1) + unit - 1) / unit * unit;
  return {.items = items, .part = part};
}

}  // namespace tersewire
