#include "trainer/models/network.h"

#include <torch/torch.h>

#include "trainer/models/models.h"

// OpenBLAS keeps threads of its own that libtorch's setting does not reach. Weak: another BLAS may
// be in its place.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace tersewire::trainer {
namespace {

// The memory as a tensor; libtorch asks for a pointer that it could write through.
torch::Tensor wrapped(const float* values, c10::IntArrayRef shape) {
  return torch::from_blob(const_cast<float*>(values), shape, torch::kFloat32);
}

torch::Tensor inputs_of(const Batch& batch) {
  std::vector<std::int64_t> shape = batch.shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(batch.samples));
  return wrapped(batch.values, shape);
}

torch::Tensor labels_of(const Batch& batch) {
  return torch::from_blob(const_cast<std::int64_t*>(batch.labels),
                          {static_cast<std::int64_t>(batch.label_count)}, torch::kInt64);
}

std::size_t right_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return static_cast<std::size_t>(scores.argmax(1).eq(labels).sum().item<std::int64_t>());
}

class TorchNetwork final : public Network {
 public:
  TorchNetwork(const std::string& name, std::uint64_t seed) : model_(make_model(name, seed)) {
    for (const auto& parameter : model_->parameters()) {
      const auto sizes = parameter.value.sizes();
      parameters_.push_back({parameter.name,
                             parameter.kind,
                             {sizes.begin(), sizes.end()},
                             parameter.value.data_ptr<float>(),
                             static_cast<std::size_t>(parameter.value.numel())});
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      model_->parameters()[i].value.register_hook(
          [this, i](const torch::Tensor& gradient) { hand_out(i, gradient); });
    }
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }

  const SampleKind& takes() const override { return takes_; }

  StepOutcome step(const Batch& batch, const Hooks& hooks) override {
    hooks_ = &hooks;
    const torch::Tensor labels = labels_of(batch);
    const torch::Tensor scores = model_->forward(inputs_of(batch), hooks.before_layer);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(scores, labels);
    if (hooks.backward_begins) hooks.backward_begins();
    loss.backward();
    // The hooks have handed the gradients out; nobody else wants them.
    for (torch::Tensor& value : model_->tensors()) value.mutable_grad().reset();
    return {loss.item<double>(), right_of(scores, labels)};
  }

  std::size_t count_right(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    return right_of(model_->forward(inputs_of(batch)), labels_of(batch));
  }

 private:
  void hand_out(std::size_t parameter, const torch::Tensor& gradient) const {
    if (!hooks_->on_gradient) return;
    const torch::Tensor dense = gradient.contiguous();
    hooks_->on_gradient(parameter, dense.data_ptr<float>(),
                        static_cast<std::size_t>(dense.numel()));
  }

  std::unique_ptr<Model> model_;
  SampleKind takes_{{1, Model::kInputSide, Model::kInputSide}, Model::kClasses, false};
  std::vector<Parameter> parameters_;
  const Hooks* hooks_ = nullptr;
};

}  // namespace

std::unique_ptr<Network> Network::make(const std::string& name, std::uint64_t seed) {
  return std::make_unique<TorchNetwork>(name, seed);
}

void hold_library_threads() {
  at::set_num_threads(1);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

}  // namespace tersewire::trainer
