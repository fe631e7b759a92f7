// Gradients without a network: values like real ones, fresh for each worker, tensor and step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/tensor.h"

namespace tersewire::bench {

// A pool of values that gradients are windows of, each at its own random place: nothing is copied,
// and many workers need no more memory than one. Any thread.
//
// Values of one kind of tensor are spread as the real gradients of that kind were that the project
// recorded; they are independent of each other, which real ones are not. Memory: 4 bytes a value of
// the largest tensor of each kind, and 4 MiB a kind.
class GradientSource {
 public:
  GradientSource(const std::vector<TensorInfo>& tensors, std::uint64_t seed);
  // Replays `recorded` instead, over and over, for all tensors. Throws kInvalidArgument where there
  // are no values.
  GradientSource(const std::vector<TensorInfo>& tensors, std::uint64_t seed,
                 std::span<const float> recorded);

  [[nodiscard]] std::span<const float> gradient(std::size_t tensor, int worker,
                                                std::uint64_t step) const;

 private:
  // What the windows of some tensors are taken from, from one of the first `places` on.
  struct Pool {
    Floats values;
    std::size_t places = 1;
  };
  struct Window {
    std::size_t pool = 0;
    std::size_t elems = 0;
  };

  std::vector<Pool> pools_;
  std::vector<Window> windows_;  // by tensor
  std::uint64_t seed_;
};

// n values as gradients have them, most near zero and few large: cubes of normal ones times 1e-3.
// The same on every call.
Floats heavy_tailed_values(std::size_t n);

}  // namespace tersewire::bench
