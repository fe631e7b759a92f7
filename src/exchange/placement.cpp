#include "placement.h"

#include <algorithm>
#include <numeric>

namespace tersewire {

std::vector<int> place_tensors(const Job& job) {
  std::vector<std::size_t> by_size(job.tensors.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](std::size_t i) { return job.tensors[i].elems(); });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(job.servers), 0);
  std::vector<int> owners(job.tensors.size());
  for (const std::size_t tensor : by_size) {
    const auto least = std::ranges::min_element(load);
    *least += job.tensors[tensor].elems();
    owners[tensor] = job.workers + static_cast<int>(least - load.begin());
  }
  return owners;
}

EncoderContext encoder_context(const Job& job, std::size_t tensor, int rank) {
  return {.seed = job.seed,
          .sender = static_cast<std::uint32_t>(rank),
          .tensor = static_cast<std::uint32_t>(tensor),
          .kind = job.tensors[tensor].kind};
}

}  // namespace tersewire
