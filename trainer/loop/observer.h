// Looks at what worker 0 is about to send.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/communicator.h"
#include "trainer/loop/observation.h"

namespace tersewire::trainer {

// Encodes each tensor a second time, with encoders of its own that begin with what the worker's
// have in their residuals: nothing that the job computes is touched. What it sees is what the
// worker's encoder does where that encodes whole gradients of its own at once: in the first round
// of a ring, for partial sums, and under shared scalers the worker's bytes differ a little. One
// thread at a time.
class Observer {
 public:
  // `job` must outlive it. Throws like choose_codecs().
  Observer(const Job& job, int rank);

  // What the codec makes of `values` in this step, with `residual` (one value for each, or none)
  // from the steps before. Cost: an encode and a decode, and memory for three copies.
  [[nodiscard]] TensorObservation look(std::size_t tensor, std::uint64_t step,
                                       std::span<const float> values,
                                       std::span<const float> residual) const;

 private:
  const Job& job_;
  int rank_;
  std::vector<std::shared_ptr<const Codec>> codecs_;  // by tensor
};

}  // namespace tersewire::trainer
