// Replicas that are promised to be equal are compared: every worker sums up its parameters, and
// worker 0 holds the sums against each other (spec/wire-format.md, "checksum").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace tersewire {

// One worker's side of it; worker 0's alone takes others'.
class ReplicaCheck {
 public:
  ReplicaCheck(std::size_t tensors, int workers)
      : summed_before_(tensors, 0), said_before_(static_cast<std::size_t>(workers), 0) {}

  // Adds a tensor's values, as they are before `step`, to the sum of all; that sum once all tensors
  // are in. A tensor that is in already changes nothing.
  std::optional<std::uint64_t> add(std::size_t tensor, std::uint64_t step,
                                   std::span<const float> values);

  // Another worker, and what it said.
  struct Other {
    int worker;
    std::uint64_t checksum;
  };

  // Takes a worker's sum; one who said something else of this step, where there is one. Throws
  // kDataLoss for a sum that does not belong here.
  std::optional<Other> take(int from, std::uint64_t step, std::uint64_t checksum);

  // Whether a worker has still to say something of this step.
  [[nodiscard]] bool awaits(int worker, std::uint64_t step) const {
    return said_before_[static_cast<std::size_t>(worker)] < step;
  }

  // Whether the last step of which all workers have said the same is this one.
  [[nodiscard]] bool agreed_before(std::uint64_t step) const { return agreed_before_ == step; }

 private:
  // What workers said of one step.
  struct Said {
    Other first;
    std::size_t workers;
  };

  std::vector<std::uint64_t> summed_before_;  // by tensor: the step
  std::uint64_t summing_ = 0;                 // the step that the sum is of
  std::uint64_t sum_ = 0;
  std::size_t summed_ = 0;                  // tensors
  std::vector<std::uint64_t> said_before_;  // by worker: the last step
  std::map<std::uint64_t, Said> said_;      // by step
  std::uint64_t agreed_before_ = 0;
};

}  // namespace tersewire
