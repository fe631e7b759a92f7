// A network of layers, as libtorch computes it.
//
// A model belongs to one thread at a time; several threads may each use their own. Whoever runs
// several at once should first hold libtorch's and its BLAS's own threads to one.
//
// C++17, like everything that includes libtorch: clang 14 cannot read Debian's libtorch 1.13 as
// C++20. The rest of the trainer sees network.h and models.h, which name nothing of libtorch.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// One tensor of a model.
struct Parameter {
  std::string name;     // "conv1.weight"
  std::string kind;     // one that tensor_kind() knows (tersewire/tensor.h)
  torch::Tensor value;  // float, on the CPU, contiguous; what is learned requires a gradient
};

// How a model is made.
struct ModelOptions {
  int classes = 0;  // that it tells apart; 0: as many as it has by default
  // Of the weights. Without one the model has shapes alone and no memory: it cannot be run.
  std::optional<std::uint64_t> seed;
  // The part of the values that dropout takes out, from 0 to below 1, in place of the model's own.
  std::optional<double> dropout;
};

// What a forward pass is for.
struct Pass {
  // Called with a run of parameters(), first_param ... first_param + param_count - 1.
  using BeforeLayer = std::function<void(std::size_t first_param, std::size_t param_count)>;

  // Right before each layer that has parameters reads them, in order, so that the caller can fetch
  // exactly those just in time; may be empty. What it throws passes through.
  BeforeLayer before_layer;
  // Batch normalization goes by the batch and updates the running statistics, and dropout is on;
  // otherwise it goes by the running statistics, and nothing is random.
  bool training = false;
  std::uint64_t draws = 0;  // the same number repeats the same dropout
};

// What a layer computes with, beside activations: its own tensors, taken in the order in which they
// were made.
class LayerInputs {
 public:
  LayerInputs(c10::ArrayRef<Parameter> parameters, c10::ArrayRef<Parameter> statistics,
              bool training, CounterRandom& random)
      : parameters_(parameters), statistics_(statistics), training_(training), random_(random) {}

  const torch::Tensor& next_parameter() { return parameters_.at(parameter_++).value; }
  const torch::Tensor& next_statistic() { return statistics_.at(statistic_++).value; }
  [[nodiscard]] bool training() const { return training_; }
  // For what is random in training.
  [[nodiscard]] CounterRandom& random() { return random_; }

 private:
  c10::ArrayRef<Parameter> parameters_;
  c10::ArrayRef<Parameter> statistics_;
  std::size_t parameter_ = 0;
  std::size_t statistic_ = 0;
  bool training_;
  CounterRandom& random_;
};

// From activations to activations.
using Compute = std::function<torch::Tensor(const torch::Tensor& x, LayerInputs& in)>;

// Layers in the order of the forward pass, each with the parameters that it uses.
class Model {
 public:
  // Makes one of models() (models.h); families.cpp knows how. The weights are bit for bit the same
  // on every machine and for any number of threads; libtorch's global generator is neither used nor
  // changed. Throws kInvalidArgument for another name, and for a dropout ratio that is none or that
  // the model has no use for. Any thread. Cost: some nanoseconds a parameter.
  static std::unique_ptr<Model> make(const std::string& name, const ModelOptions& options);

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // The samples that it takes; with an empty shape, text of any length.
  [[nodiscard]] const SampleKind& takes() const noexcept { return takes_; }

  // All parameters, in the order in which the forward pass uses them. Writing to their values
  // (under a torch::NoGradGuard) changes the model.
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

  // The running means and variances of batch normalization, which are not learned.
  [[nodiscard]] const std::vector<Parameter>& statistics() const noexcept { return statistics_; }

  // The parameters' tensors, for an optimizer.
  [[nodiscard]] std::vector<torch::Tensor> tensors() const;

  // Elements of all parameters together.
  [[nodiscard]] std::size_t elems() const noexcept;

  // Computes the scores (logits) of a batch.
  //   x  takes().shape values a sample, float, in any shape that begins with the number of samples;
  //      of text the characters' numbers, int64, [samples, characters]
  // Returns [samples, classes], of text [samples * characters, classes]. Throws kInvalidArgument
  // where x has another shape or type.
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x, const Pass& pass = {}) const;

 private:
  friend class ModelMaker;

  struct Layer {
    std::size_t first_param;
    std::size_t param_count;
    std::size_t first_statistic;
    std::size_t statistic_count;
    Compute compute;
  };

  Model(SampleKind takes, std::uint64_t seed) : takes_(std::move(takes)), seed_(seed) {}

  [[nodiscard]] torch::Tensor checked(const torch::Tensor& x) const;

  SampleKind takes_;
  std::uint64_t seed_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter> statistics_;
  std::vector<Layer> layers_;
};

}  // namespace tersewire::trainer
