// What changes one tensor by its gradient, without a word of libtorch.
//
// An Optimizer belongs to one thread at a time; several threads may each use their own once
// hold_library_threads() (network.h) has been called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tersewire::trainer {

struct OptimizerSettings {
  enum class Kind : std::uint8_t { kSgd, kNesterov, kAdam, kAdamW };

  Kind kind = Kind::kSgd;
  double momentum = 0;  // of sgd, from 0 to below 1, and of nesterov, above 0
  double beta1 = 0.9;   // of adam and adamw, from 0 to below 1, and so is beta2
  double beta2 = 0.999;
  double eps = 1e-8;        // of adam and adamw
  double weight_decay = 0;  // so much of each value is added to its gradient; with adamw the value
                            // falls by so much of itself, times the learning rate, instead
  double l1 = 0;            // and this times the value's sign
};

// libtorch's SGD with momentum, plain or Nesterov's, its Adam or its AdamW, for one tensor.
class Optimizer {
 public:
  // What it remembers from step to step: as many values as the parameter, zeros before the first
  // step. They stay where they are; who writes them resumes from what was saved.
  struct Buffer {
    std::string name;  // "momentum"; "exp_avg" and "exp_avg_sq"
    float* values;
  };

  // Works in the parameter's own memory, which must outlive it.
  static std::unique_ptr<Optimizer> make(const OptimizerSettings& settings, float* values,
                                         std::size_t elems);
  virtual ~Optimizer() = default;

  // Changes the parameter's values by one step, after `taken` others. `gradient` has as many
  // elements.
  virtual void step(const float* gradient, double learning_rate, std::uint64_t taken) = 0;

  // Beside these, only the number of steps taken must be saved. None without momentum.
  [[nodiscard]] virtual const std::vector<Buffer>& buffers() const = 0;
};

}  // namespace tersewire::trainer
