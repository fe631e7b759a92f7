// The data sets that `tersewire data get` knows. Sizes and SHA-256 are those that TensorFlow
// Datasets and others record for the same files.
#include <numeric>

#include "apps/data/data_get.h"

namespace tersewire::apps {
namespace {

ArchiveMember cifar_batch(const std::string& name) {
  return {.path = "cifar-10-batches-bin/" + name, .name = name, .bytes = 30730000};
}

}  // namespace

std::uint64_t DataSet::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const DataFile& file) { return sum + file.bytes; });
}

const std::vector<DataSet>& known_data_sets() {
  static const std::vector<DataSet> sets{
      {.name = "mnist",
       .url = "https://ossci-datasets.s3.amazonaws.com/mnist",
       .files = {{.name = "train-images-idx3-ubyte.gz",
                  .bytes = 9912422,
                  .sha256 = "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                 {.name = "train-labels-idx1-ubyte.gz",
                  .bytes = 28881,
                  .sha256 = "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
                 {.name = "t10k-images-idx3-ubyte.gz",
                  .bytes = 1648877,
                  .sha256 = "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                 {.name = "t10k-labels-idx1-ubyte.gz",
                  .bytes = 4542,
                  .sha256 = "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}},
       .members = {},
       .train = "--model lenet"},
      {.name = "cifar10",
       .url = "https://www.cs.toronto.edu/~kriz",
       .files = {{.name = "cifar-10-binary.tar.gz",
                  .bytes = 170052171,
                  .sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
       .members = {cifar_batch("data_batch_1.bin"), cifar_batch("data_batch_2.bin"),
                   cifar_batch("data_batch_3.bin"), cifar_batch("data_batch_4.bin"),
                   cifar_batch("data_batch_5.bin"), cifar_batch("test_batch.bin")},
       .train = "--model resnet20"},
      {.name = "tinyshakespeare",
       .url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
       .files = {{.name = "input.txt",
                  .bytes = 1115394,
                  .sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}},
       .members = {},
       .train = "--recipe gpt"}};
  return sets;
}

}  // namespace tersewire::apps
