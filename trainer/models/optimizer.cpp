#include "trainer/models/optimizer.h"

#include <torch/torch.h>

#include <sstream>
#include <tuple>
#include <type_traits>
#include <utility>

#include "trainer/models/torch_library.h"

namespace tersewire::trainer {
namespace {

// libtorch asks for a pointer that it could write through.
torch::Tensor wrapped(const float* values, std::int64_t elems) {
  return torch::from_blob(const_cast<float*>(values), {elems}, torch::kFloat32);
}

// A tensor's key in an optimizer's state: its address, before libtorch 2.2 as text.
template <typename Key>
Key key_of(const torch::Tensor& tensor) {
  if constexpr (std::is_pointer_v<Key>) {
    return tensor.unsafeGetTensorImpl();
  } else {
    std::ostringstream text;
    text << tensor.unsafeGetTensorImpl();
    return text.str();
  }
}

// What the optimizers share. Each makes libtorch's state for the parameter at once, which libtorch
// would leave for the first step: so it is there to be written when a run is resumed.
template <typename Optim, typename Options, typename State>
class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const Options& options, double l1, float* values, std::size_t elems)
      : value_(wrapped(values, static_cast<std::int64_t>(elems))),
        l1_(l1),
        optim_({value_}, options) {
    auto state = std::make_unique<State>();
    state_ = state.get();
    using Key = typename std::decay_t<decltype(optim_.state())>::key_type;
    optim_.state()[key_of<Key>(value_)] = std::move(state);
  }

  void step(const float* gradient, double learning_rate, std::uint64_t taken) override {
    begin_step(taken);
    const torch::Tensor given = wrapped(gradient, value_.numel());
    value_.mutable_grad() = l1_ > 0 ? torch::add(given, value_.sign(), l1_) : given;
    optim_.param_groups()[0].options().set_lr(learning_rate);
    optim_.step();
    value_.mutable_grad().reset();
  }

  [[nodiscard]] const std::vector<Buffer>& buffers() const override { return buffers_; }

 protected:
  virtual void begin_step(std::uint64_t /*taken*/) {}

  torch::Tensor new_buffer(const char* name) {
    torch::Tensor buffer = torch::zeros_like(value_);
    buffers_.push_back({name, buffer.data_ptr<float>()});
    return buffer;
  }
  [[nodiscard]] State& state() { return *state_; }

 private:
  torch::Tensor value_;
  double l1_;
  Optim optim_;
  State* state_;  // optim_'s, of the only parameter
  std::vector<Buffer> buffers_;
};

class Sgd final : public TorchOptimizer<torch::optim::SGD, torch::optim::SGDOptions,
                                        torch::optim::SGDParamState> {
 public:
  Sgd(const OptimizerSettings& settings, float* values, std::size_t elems)
      : TorchOptimizer(torch::optim::SGDOptions(1)
                           .momentum(settings.momentum)
                           .nesterov(settings.kind == OptimizerSettings::Kind::kNesterov)
                           .weight_decay(settings.weight_decay),
                       settings.l1, values, elems) {
    if (settings.momentum > 0) state().momentum_buffer(new_buffer("momentum"));
  }
};

// Adam, and AdamW, which differs in the weight decay alone.
template <typename Optim, typename Options, typename State>
class AdamLike final : public TorchOptimizer<Optim, Options, State> {
 public:
  AdamLike(const OptimizerSettings& settings, float* values, std::size_t elems)
      : TorchOptimizer<Optim, Options, State>(
            Options(1)
                .betas(std::make_tuple(settings.beta1, settings.beta2))
                .eps(settings.eps)
                .weight_decay(settings.weight_decay),
            settings.l1, values, elems) {
    this->state().exp_avg(this->new_buffer("exp_avg"));
    this->state().exp_avg_sq(this->new_buffer("exp_avg_sq"));
  }

 private:
  void begin_step(std::uint64_t taken) override {
    this->state().step(static_cast<std::int64_t>(taken));
  }
};

using Adam = AdamLike<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamW =
    AdamLike<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

}  // namespace

std::unique_ptr<Optimizer> make_torch_optimizer(const OptimizerSettings& settings, float* values,
                                                std::size_t elems) {
  switch (settings.kind) {
    case OptimizerSettings::Kind::kAdam:
      return std::make_unique<Adam>(settings, values, elems);
    case OptimizerSettings::Kind::kAdamW:
      return std::make_unique<AdamW>(settings, values, elems);
    default:
      return std::make_unique<Sgd>(settings, values, elems);
  }
}

}  // namespace tersewire::trainer
