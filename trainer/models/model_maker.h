// Builds a model: says which tensors there are and what their first values are, layer by layer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace tersewire::trainer {

class ModelMaker {
 public:
  // How weights are drawn. All are uniform within a bound: a normal distribution's tails would have
  // bits that depend on the machine's logarithm, and the papers' arguments need the variance alone.
  enum class Weights {
    kFanIn,   // 1 / sqrt(fan-in), biases too: PyTorch's default, variance 1 / (3 fan-in)
    kHe,      // sqrt(6 / fan-in), variance 2 / fan-in (He et al. 2015, for ReLU); biases 0
    kGlorot,  // sqrt(6 / (fan-in + fan-out)) (Glorot and Bengio 2010); biases 0
    kGpt,     // 0.02 sqrt(3), variance 0.02^2 (Radford et al. 2018); biases 0
  };

  // `takes`, `own_dropout`: the model's defaults.
  ModelMaker(const SampleKind& takes, const ModelOptions& options);

  [[nodiscard]] const SampleKind& takes() const { return model_->takes_; }
  [[nodiscard]] int classes() const { return takes().classes; }

  // The rule for the weights that follow; kFanIn before it is called.
  void draw(Weights weights) { weights_ = weights; }

  // The tensors of the layer that comes next, in the order in which it takes them. "NAME.weight",
  // which for convolutions is [out, in, side, side] and for dense layers [out, in], ...
  void weight(const std::string& name, const std::string& kind,
              const std::vector<std::int64_t>& shape);
  // ... and "NAME.bias" after it, where there is one.
  void weight_and_bias(const std::string& name, const std::string& kind,
                       const std::vector<std::int64_t>& shape);
  // A factor (1) and a summand (0) a channel, and the running means (0) and variances (1).
  void norm(const std::string& name, std::int64_t channels);
  // A factor (1) and a summand (0) for each of a sample's values; no statistics.
  void layer_norm(const std::string& name, std::int64_t values);
  // A recurrent layer's tensors, in libtorch's order: input, forget, cell, output gate.
  void lstm(const std::string& name, std::int64_t in, std::int64_t hidden);

  // Ends the layer: `compute` takes the tensors made since the last one ended, which may be none.
  void layer(Compute compute);

  // A layer that in training sets a part `ratio` of the values to 0 and scales the others up.
  void dropout(double ratio);

  // The model, once. Throws kInvalidArgument where a dropout ratio was given that no layer used.
  std::unique_ptr<Model> take();

 private:
  void learned(const std::string& name, const std::string& kind, const torch::Tensor& value);
  [[nodiscard]] float bound(const std::vector<std::int64_t>& shape) const;
  [[nodiscard]] torch::Tensor constant(std::int64_t elems, float value) const;
  [[nodiscard]] torch::Tensor uniform(const std::vector<std::int64_t>& shape, float bound);

  ModelOptions options_;
  std::unique_ptr<Model> model_;
  Weights weights_ = Weights::kFanIn;
  std::uint64_t stream_ = 0;  // each tensor that is drawn has its own
  bool drops_ = false;
};

}  // namespace tersewire::trainer
