#include "trainer/models/families.h"
#include "trainer/models/layers.h"

namespace tersewire::trainer {
namespace {

constexpr std::int64_t kHidden = 512;

// The hidden state of every character of [samples, characters, values]. It starts at zero in every
// batch: samples are pieces of text that do not follow one another.
torch::Tensor lstm(const torch::Tensor& x, LayerInputs& in) {
  const torch::Tensor start = torch::zeros({1, x.size(0), kHidden});
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(in.next_parameter());
  return std::get<0>(torch::lstm(x, {start, start}, tensors, /*has_biases=*/true, /*num_layers=*/1,
                                 /*dropout=*/0, in.training(), /*bidirectional=*/false,
                                 /*batch_first=*/true));
}

}  // namespace

// AdaComp's LSTM, which is Karpathy's char-rnn: two layers of 512, a dense one, over one-hot
// characters. Its text has 67 different ones; the classes here are those of the text that is given,
// 65 in the usual Shakespeare.
void build_lstm(ModelMaker& make) {
  const std::int64_t characters = make.classes();
  make.layer([characters](const torch::Tensor& x, LayerInputs& /*none*/) {
    return torch::one_hot(x, characters).to(torch::kFloat32);
  });
  make.lstm("lstm1", characters, kHidden);
  make.layer(lstm);
  make.dropout(0);
  make.lstm("lstm2", kHidden, kHidden);
  make.layer(lstm);
  make.dropout(0);
  add_dense(make, "fc", kHidden, characters,
            [](const torch::Tensor& x, LayerInputs& in) { return dense(x.flatten(0, 1), in); });
}

}  // namespace tersewire::trainer
