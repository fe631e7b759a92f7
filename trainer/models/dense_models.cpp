#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

torch::Tensor dense_tanh(const torch::Tensor& x, LayerInputs& in) {
  return torch::tanh(dense(x, in));
}

void build_tanh_mlp(ModelMaker& make, int first, int second) {
  make.layer(flatten);
  add_dense(make, "fc1", 28 * 28, first, dense_tanh);
  add_dense(make, "fc2", first, second, dense_tanh);
  add_dense(make, "fc3", second, make.classes(), dense);
}

}  // namespace

// Oland and Raj, section 3: every neuron is a tanh there. The last layer's are left out here, since
// its values are the logits of a softmax, where the paper minimizes the mean squared error.
void build_mlp(ModelMaker& make) { build_tanh_mlp(make, 392, 50); }

// From no paper: for tests and first tries.
void build_small_mlp(ModelMaker& make) { build_tanh_mlp(make, 16, 16); }

// INCEPTIONN, section VII-A: five dense layers, 500 wide. ReLU is a guess. The paper's 2.5 MB do
// not fit its own words, which make 4.6 MB.
void build_hdc(ModelMaker& make) {
  make.layer(flatten);
  add_dense(make, "fc1", 28 * 28, 500, dense_relu);
  for (const char* name : {"fc2", "fc3", "fc4"}) add_dense(make, name, 500, 500, dense_relu);
  add_dense(make, "fc5", 500, make.classes(), dense);
}

// AdaComp's BN50-DNN, of speech features; the section on methodology lists its layers. ReLU is a
// guess, and the corpus cannot be had freely: this one is for size and timing.
void build_bn50(ModelMaker& make) {
  make.draw(ModelMaker::Weights::kHe);
  add_dense(make, "fc1", 440, 1024, dense_relu);
  for (const char* name : {"fc2", "fc3", "fc4", "fc5"}) {
    add_dense(make, name, 1024, 1024, dense_relu);
  }
  add_dense(make, "fc6", 1024, make.classes(), dense);
}

}  // namespace tersewire::trainer
