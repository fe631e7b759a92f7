// The models that the trainer knows: small classifiers of 28 x 28 greyscale images.
//
// A model belongs to one thread at a time; several threads may each use their own. Whoever runs
// several at once should first hold libtorch's and its BLAS's own threads to one.
//
// C++17, like everything that includes libtorch: clang 14 cannot read Debian's libtorch 1.13 as
// C++20. The rest of the trainer sees network.h, which names nothing of libtorch.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tersewire::trainer {

// What a model learns: one tensor of it.
struct Parameter {
  std::string name;     // "conv1.weight"
  std::string kind;     // "conv" or "dense" for a weight, "bias" for a bias
  torch::Tensor value;  // float, on the CPU, contiguous, a leaf that requires a gradient
};

// Layers in the order of the forward pass, each with the parameters that it uses.
class Model {
 public:
  // Images a model takes: one channel, and this many pixels a side.
  static constexpr int kInputSide = 28;
  static constexpr int kClasses = 10;

  // Called with a run of parameters(), first_param ... first_param + param_count - 1.
  using BeforeLayer = std::function<void(std::size_t first_param, std::size_t param_count)>;

  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // All parameters, in the order in which the forward pass uses them. Writing to their values
  // (under a torch::NoGradGuard) changes the model.
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

  // The parameters' tensors, for an optimizer.
  [[nodiscard]] std::vector<torch::Tensor> tensors() const;

  // Elements of all parameters together.
  [[nodiscard]] std::size_t elems() const noexcept;

  // Computes the scores (logits) of a batch.
  //   x             float, [batch, 1, 28, 28] or anything with 784 values an image
  //   before_layer  called right before each layer that has parameters reads them, in order, so
  //                 that the caller can fetch exactly those just in time; may be empty. What it
  //                 throws passes through.
  // Returns [batch, 10]. Throws kInvalidArgument where x has another shape or type.
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x,
                                      const BeforeLayer& before_layer = {}) const;

 protected:
  explicit Model(std::string name) : name_(std::move(name)) {}

  // One step of the forward pass: from activations and the layer's own parameters to activations.
  using Compute =
      std::function<torch::Tensor(const torch::Tensor& x, c10::ArrayRef<Parameter> parameters)>;

  // Appends a layer; `parameters`, which may be none, are those that `compute` will be given.
  void add_layer(std::vector<Parameter> parameters, Compute compute);

 private:
  struct Layer {
    std::size_t first_param;
    std::size_t param_count;
    Compute compute;
  };

  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Layer> layers_;
};

// Makes a model with fresh weights.
//   name  one of model_names()
//   seed  of the weights, which are bit for bit the same on every machine and for any number of
//         threads: uniform within 1 / sqrt(fan-in), as PyTorch's layers are by default
// libtorch's global generator is neither used nor changed. Throws kInvalidArgument, listing the
// names, for another name. Any thread. Cost: a few milliseconds.
std::unique_ptr<Model> make_model(const std::string& name, std::uint64_t seed);

// The models there are: "mlp", 784-392-50-10 with ReLU; and "lenet", Caffe's LeNet.
const std::vector<std::string>& model_names();

}  // namespace tersewire::trainer
