#include "trainer/models/network.h"

#include <torch/torch.h>

#include "trainer/models/model.h"
#include "trainer/models/torch_library.h"

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
  if (batch.tokens == nullptr) return wrapped(batch.values, shape);
  return torch::from_blob(const_cast<std::int64_t*>(batch.tokens), shape, torch::kInt64);
}

torch::Tensor labels_of(const Batch& batch) {
  return torch::from_blob(const_cast<std::int64_t*>(batch.labels),
                          {static_cast<std::int64_t>(batch.label_count)}, torch::kInt64);
}

std::size_t right_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return static_cast<std::size_t>(scores.argmax(1).eq(labels).sum().item<std::int64_t>());
}

std::vector<Network::Parameter> listed(const std::vector<Parameter>& tensors) {
  std::vector<Network::Parameter> list;
  for (const Parameter& tensor : tensors) {
    const auto sizes = tensor.value.sizes();
    list.push_back({tensor.name,
                    tensor.kind,
                    {sizes.begin(), sizes.end()},
                    tensor.value.is_meta() ? nullptr : tensor.value.data_ptr<float>(),
                    static_cast<std::size_t>(tensor.value.numel())});
  }
  return list;
}

class TorchNetwork final : public Network {
 public:
  explicit TorchNetwork(std::unique_ptr<Model> model)
      : model_(std::move(model)),
        parameters_(listed(model_->parameters())),
        statistics_(listed(model_->statistics())) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      model_->parameters()[i].value.register_hook(
          [this, i](const torch::Tensor& gradient) { hand_out(i, gradient); });
    }
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const override { return parameters_; }

  [[nodiscard]] const std::vector<Parameter>& statistics() const override { return statistics_; }

  [[nodiscard]] const SampleKind& takes() const override { return model_->takes(); }

  Outcome step(const Batch& batch, const Hooks& hooks, std::uint64_t draws) override {
    hooks_ = &hooks;
    const torch::Tensor labels = labels_of(batch);
    const torch::Tensor scores =
        model_->forward(inputs_of(batch), {hooks.before_layer, /*training=*/true, draws});
    const torch::Tensor loss = torch::nn::functional::cross_entropy(scores, labels);
    if (hooks.backward_begins) hooks.backward_begins();
    loss.backward();
    // The hooks have handed the gradients out; nobody else wants them.
    for (torch::Tensor& value : model_->tensors()) value.mutable_grad().reset();
    return {loss.item<double>(), right_of(scores, labels)};
  }

  Outcome test(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor labels = labels_of(batch);
    const torch::Tensor scores = model_->forward(inputs_of(batch));
    const torch::Tensor loss = torch::nn::functional::cross_entropy(scores, labels);
    return {loss.item<double>(), right_of(scores, labels)};
  }

 private:
  void hand_out(std::size_t parameter, const torch::Tensor& gradient) const {
    if (!hooks_->on_gradient) return;
    const torch::Tensor dense = gradient.contiguous();
    hooks_->on_gradient(parameter, dense.data_ptr<float>(),
                        static_cast<std::size_t>(dense.numel()));
  }

  std::unique_ptr<Model> model_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter> statistics_;
  const Hooks* hooks_ = nullptr;
};

}  // namespace

std::unique_ptr<Network> make_torch_network(const std::string& name, int classes,
                                            std::uint64_t seed, std::optional<double> dropout) {
  return std::make_unique<TorchNetwork>(Model::make(name, {classes, seed, dropout}));
}

std::vector<Network::Parameter> torch_tensors(const std::string& name, int classes,
                                              std::optional<double> dropout) {
  return listed(Model::make(name, {classes, {}, dropout})->parameters());
}

void hold_torch_threads() {
  at::set_num_threads(1);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

}  // namespace tersewire::trainer
