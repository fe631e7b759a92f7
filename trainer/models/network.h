// A model to train, without a word of libtorch: what the training loop sees of it.
//
// A Network belongs to one thread at a time; several threads may each use their own once
// hold_library_threads() has been called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/batch.h"

namespace tersewire::trainer {

class Network {
 public:
  // One tensor of the model. `values` stays where it is for the network's life.
  struct Parameter {
    std::string name;  // "conv1.weight"
    std::string kind;  // "conv", "dense" or "bias"
    std::vector<std::uint64_t> shape;
    float* values;
    std::size_t elems;
  };

  // What happens during a step, in the thread that takes it. What they throw passes through.
  struct Hooks {
    // Right before parameters first ... first + count - 1 are read, in forward order.
    std::function<void(std::size_t first, std::size_t count)> before_layer;
    std::function<void()> backward_begins;
    // As soon as the backward pass has a parameter's gradient.
    std::function<void(std::size_t parameter, const float* gradient, std::size_t elems)>
        on_gradient;
  };

  struct StepOutcome {
    double loss;        // cross entropy, mean over the batch
    std::size_t right;  // labels found
  };

  // See make_model() (models.h); throws kInvalidArgument for an unknown name.
  static std::unique_ptr<Network> make(const std::string& name, std::uint64_t seed);
  virtual ~Network() = default;

  // In the order of the forward pass.
  [[nodiscard]] virtual const std::vector<Parameter>& parameters() const = 0;

  // What samples it takes.
  [[nodiscard]] virtual const SampleKind& takes() const = 0;

  // Forward and backward pass of a batch. Changes no parameter.
  virtual StepOutcome step(const Batch& batch, const Hooks& hooks) = 0;

  // How many labels of a batch it finds; the forward pass alone.
  virtual std::size_t count_right(const Batch& batch) = 0;
};

// Holds the threads that libtorch and its BLAS would start to one, so that workers do not fight.
// For the process, and for the calling thread: OpenMP counts by thread, so call it in each.
void hold_library_threads();

}  // namespace tersewire::trainer
