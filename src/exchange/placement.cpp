#include "placement.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tersewire {

std::vector<int> place_tensors(const Job& job, int servers) {
  std::vector<std::size_t> by_size(job.tensors.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](std::size_t i) { return job.tensors[i].elems(); });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(servers), 0);
  std::vector<int> owners(job.tensors.size());
  for (const std::size_t tensor : by_size) {
    const auto least = std::ranges::min_element(load);
    *least += job.tensors[tensor].elems();
    owners[tensor] = job.workers + static_cast<int>(least - load.begin());
  }
  return owners;
}

std::vector<std::vector<std::size_t>> make_buckets(const Job& job,
                                                   const std::vector<std::uint64_t>& keys) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<std::uint64_t, Open> open;
  for (std::size_t tensor = job.tensors.size(); tensor-- > 0;) {
    auto [place, fresh] = open.try_emplace(keys[tensor]);
    if (fresh || place->second.bytes >= job.bucket_bytes) {
      place->second = {.bucket = buckets.size(), .bytes = 0};
      buckets.emplace_back();
    }
    buckets[place->second.bucket].push_back(tensor);
    place->second.bytes += job.tensors[tensor].elems() * sizeof(float);
  }
  return buckets;
}

EncoderContext encoder_context(const Job& job, std::size_t tensor, int rank) {
  return {.seed = job.seed,
          .sender = static_cast<std::uint32_t>(rank),
          .tensor = static_cast<std::uint32_t>(tensor),
          .kind = job.tensors[tensor].kind};
}

}  // namespace tersewire
