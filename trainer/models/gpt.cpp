#include <cmath>

#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

constexpr std::int64_t kBlocks = 3;
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kInner = 4 * kWidth;  // of the dense layers between two attentions

torch::Tensor layer_norm(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor& factor = in.next_parameter();
  return torch::layer_norm(x, {x.size(-1)}, factor, in.next_parameter());
}

// [samples, characters, width] to [samples, heads, characters, width / heads].
torch::Tensor by_head(const torch::Tensor& x) {
  return x.reshape({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
}

// Every character looks at itself and at those before it.
torch::Tensor attention(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor normal = layer_norm(x, in);
  const auto parts = dense(normal, in).chunk(3, -1);  // query, key, value
  const torch::Tensor query = by_head(parts[0]);
  const double scale = 1 / std::sqrt(static_cast<double>(query.size(-1)));
  const torch::Tensor scores = query.matmul(by_head(parts[1]).transpose(-2, -1)) * scale;
  const torch::Tensor later =
      torch::ones({x.size(1), x.size(1)}, torch::kBool).triu(/*diagonal=*/1);
  const torch::Tensor weights = scores.masked_fill(later, -INFINITY).softmax(-1);
  const torch::Tensor heads = weights.matmul(by_head(parts[2]));
  return x + dense(heads.transpose(1, 2).flatten(2), in);
}

torch::Tensor two_dense(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor inner = torch::gelu(dense(layer_norm(x, in), in));
  return x + dense(inner, in);
}

torch::Tensor embedding(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor& characters = in.next_parameter();
  const torch::Tensor& places = in.next_parameter();
  return torch::embedding(characters, x) + places.slice(0, 0, x.size(1));
}

void add_block(ModelMaker& make, const std::string& name) {
  make.layer_norm(name + ".norm1", kWidth);
  make.weight_and_bias(name + ".attention", "dense", {3 * kWidth, kWidth});
  make.weight_and_bias(name + ".heads", "dense", {kWidth, kWidth});
  make.layer(attention);
  make.layer_norm(name + ".norm2", kWidth);
  make.weight_and_bias(name + ".fc1", "dense", {kInner, kWidth});
  make.weight_and_bias(name + ".fc2", "dense", {kWidth, kInner});
  make.layer(two_dense);
}

}  // namespace

// A small character GPT, as GPT-2 (Radford et al. 2019) has its blocks: normalized before attention
// and dense layers, GELU, learned places. What embeds characters and what scores them are two
// tensors. No dropout.
void build_gpt(ModelMaker& make) {
  make.draw(ModelMaker::Weights::kGpt);
  make.weight("characters", "embedding", {make.classes(), kWidth});
  make.weight("places", "embedding", {make.takes().shape[0], kWidth});
  make.layer(embedding);
  for (std::int64_t block = 1; block <= kBlocks; ++block) {
    add_block(make, "block" + std::to_string(block));
  }
  make.layer_norm("norm", kWidth);
  add_dense(make, "out", kWidth, make.classes(), [](const torch::Tensor& x, LayerInputs& in) {
    return dense(layer_norm(x, in), in).flatten(0, 1);
  });
}

}  // namespace tersewire::trainer
