// A model to train, without a word of libtorch: what the training loop sees of it.
//
// A Network belongs to one thread at a time; several threads may each use their own once
// hold_library_threads() has been called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/batch.h"

namespace tersewire::trainer {

class Network {
 public:
  // One tensor of the model. `values` stays where it is for the network's life.
  struct Parameter {
    std::string name;  // "conv1.weight"
    std::string kind;  // one that tensor_kind() knows (tersewire/tensor.h)
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

  struct Outcome {
    double loss;        // cross entropy, mean over the batch's labels
    std::size_t right;  // labels found
  };

  // Makes one of models() (models.h).
  //   classes  that it tells apart (of text, different characters); 0: as many as by default
  //   seed     of the weights and of dropout; the weights are the same bits on every machine
  //   dropout  the part of the values that dropout takes out, in place of the model's own
  // Throws kInvalidArgument for an unknown name, and for a ratio that is not from 0 to below 1 or
  // that the model has no use for.
  static std::unique_ptr<Network> make(const std::string& name, int classes, std::uint64_t seed,
                                       std::optional<double> dropout = {});

  // The parameters() of such a network, without memory (values are null): its tensors alone. Cheap
  // for any model. Throws like make().
  static std::vector<Parameter> tensors(const std::string& name, int classes,
                                        std::optional<double> dropout = {});

  virtual ~Network() = default;

  // In the order of the forward pass.
  [[nodiscard]] virtual const std::vector<Parameter>& parameters() const = 0;

  // The running means and variances of batch normalization, which step() updates and test()
  // goes by. They are not learned, and no exchange carries them.
  [[nodiscard]] virtual const std::vector<Parameter>& statistics() const = 0;

  // What samples it takes; with an empty shape text of any length.
  [[nodiscard]] virtual const SampleKind& takes() const = 0;

  // Forward and backward pass of a batch. Changes no parameter. Dropout repeats where `draws` does:
  // give every worker and step another.
  virtual Outcome step(const Batch& batch, const Hooks& hooks, std::uint64_t draws) = 0;

  // The forward pass alone, without dropout.
  virtual Outcome test(const Batch& batch) = 0;
};

// Holds the threads that libtorch and its BLAS would start to one, so that workers do not fight.
// For the process, and for the calling thread: OpenMP counts by thread, so call it in each.
void hold_library_threads();

}  // namespace tersewire::trainer
