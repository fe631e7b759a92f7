// Every network as the training loop sees it: its tensors, its hooks, its gradients, what it
// learns.
#include "trainer/models/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "apps/bench/model_tensors.h"
#include "tersewire/error.h"
#include "trainer/data/dataset.h"
#include "trainer/loop/evaluation.h"
#include "trainer/models/models.h"

namespace tersewire::trainer {
namespace {

std::size_t values_in(const std::vector<Network::Parameter>& tensors) {
  std::size_t values = 0;
  for (const auto& tensor : tensors) values += tensor.elems;
  return values;
}

TEST(Networks, HaveAsManyValuesAsTheirPapersSay) {
  const std::map<std::string, std::size_t> known = {
      {"mlp", 784 * 392 + 392 + 392 * 50 + 50 + 50 * 10 + 10},
      {"small-mlp", 785 * 16 + 17 * 16 + 17 * 10},
      {"hdc", 785 * 500 + 3 * 501 * 500 + 501 * 10},
      {"lenet", 431'080},        // Caffe's
      {"mnist-cnn", 431'080},    // 1.7 MB (AdaComp, table 1)
      {"cifar-cnn", 89'578},     // Caffe's "full"; AdaComp's 0.3 MB
      {"cifarnet", 1'068'298},   // that of TensorFlow's tutorial
      {"resnet20", 269'722},     // 0.27 M (He et al., table 6)
      {"resnet32", 464'154},     // 0.46 M
      {"resnet56", 853'018},     // 0.85 M
      {"resnet110", 1'727'962},  // 1.7 M
      {"resnet18", 11'689'512},  // torchvision's; 44.6 MB (AdaComp)
      {"resnet50", 25'557'032},  // torchvision's; 98 MB (INCEPTIONN, AdaComp)
      // Its biases (Caffe's without auxiliary classifiers has 6,998,552 values) become two values
      // of normalization: for the 320 channels before the blocks, and those of 3a, 3b, 4a to 4e,
      // 5a, 5b.
      {"googlenet", 6'998'552 + 320 + 368 + 640 + 624 + 648 + 664 + 704 + 1024 + 1024 + 1264},
      {"alexnet", 61'100'840},  // 233 MB (INCEPTIONN)
      {"alexnet-bn", 11 * 11 * 3 * 64 + 5 * 5 * 64 * 192 + 9 * 192 * 384 + 9 * 384 * 256 +
                         9 * 256 * 256 + 2 * (64 + 192 + 384 + 256 + 256) + (9216 + 1) * 4096 +
                         (4096 + 1) * 4096 + (4096 + 1) * 1000},
      {"vgg-a", 132'863'336},  // 133 M (Simonyan and Zisserman, table 2)
      {"vgg16", 138'357'544},  // 138 M (Simonyan and Zisserman, table 2)
      {"bn50", 441 * 1024 + 4 * 1025 * 1024 + 1025 * 5999},  // 43 MB (AdaComp)
      {"lstm", 3'320'385},                                   // 13 MB (AdaComp)
      // 65 characters and 64 places; normalization, attention and its heads, normalization, two
      // dense layers; normalization and scores.
      {"gpt", (65 + 64) * 128 + 3 * (256 + 129 * 384 + 129 * 128 + 256 + 129 * 512 + 513 * 128) +
                  256 + 129 * 65}};
  EXPECT_EQ(models().size(), known.size());
  for (const ModelInfo& model : models()) {
    EXPECT_EQ(values_in(Network::tensors(model.name, 0)), known.at(model.name)) << model.name;
  }
}

TEST(Networks, HaveTheTensorsThatTheBenchMeasuresWith) {
  for (const std::string& name : bench::model_names()) {
    const auto expected = bench::model_tensors(name);
    const auto tensors = Network::tensors(name, 0);
    ASSERT_EQ(tensors.size(), expected.size()) << name;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].name, expected[i].name) << name;
      EXPECT_EQ(tensors[i].shape, expected[i].shape) << name << ' ' << tensors[i].name;
      EXPECT_EQ(tensor_kind(tensors[i].kind), expected[i].kind) << name << ' ' << tensors[i].name;
    }
  }
}

TEST(Networks, TellAsManyClassesApartAsTheyAreTold) {
  for (const ModelInfo& model : models()) {
    EXPECT_EQ(Network::tensors(model.name, 7).back().elems, 7U) << model.name;
  }
  EXPECT_EQ(Network::tensors("lstm", 7)[0].shape, (std::vector<std::uint64_t>{2048, 7}));
  EXPECT_EQ(Network::make("lenet", 7, 1)->takes().classes, 7);
}

TEST(Networks, RefuseWhatThereIsNot) {
  const auto sentence = [](const auto& make) {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  std::string names;
  for (const ModelInfo& model : models()) names += (names.empty() ? "" : ", ") + model.name;
  EXPECT_EQ(sentence([] { Network::make("resnet", 0, 1); }),
            "unknown model 'resnet'; choose one of: " + names);
  EXPECT_NE(sentence([] { Network::tensors("lenet", -1); }), "");
  EXPECT_NE(sentence([] { Network::tensors("resnet20", 0, 0.5); }), "");
  for (const double ratio : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(sentence([&] { Network::make("lenet", 0, 1, ratio); }), "") << ratio;
  }
}

// A batch of noise, with memory of its own.
class Noise {
 public:
  Noise(const SampleKind& kind, std::size_t samples) {
    CounterRandom random(1, 2, 3);
    batch_.samples = samples;
    batch_.shape = kind.text ? std::vector<std::int64_t>{5} : kind.shape;
    const auto elems =
        std::accumulate(batch_.shape.begin(), batch_.shape.end(), samples, std::multiplies<>());
    const auto classes = static_cast<std::uint64_t>(kind.classes);
    for (std::size_t i = 0; i < elems; ++i) {
      values_.push_back(random.uniform(-1, 1));
      tokens_.push_back(random.below(classes));
    }
    batch_.label_count = kind.text ? elems : samples;
    for (std::size_t i = 0; i < batch_.label_count; ++i) labels_.push_back(random.below(classes));
    batch_.values = kind.text ? nullptr : values_.data();
    batch_.tokens = kind.text ? tokens_.data() : nullptr;
    batch_.labels = labels_.data();
  }
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }

 private:
  std::vector<float> values_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::int64_t> labels_;
  Batch batch_;
};

class EveryNetwork : public ::testing::TestWithParam<const char*> {
 protected:
  EveryNetwork() { hold_library_threads(); }
};

// Large images take long.
std::size_t few(const SampleKind& kind) {
  return !kind.text && kind.shape.back() > 100 && kind.shape.size() > 1 ? 1 : 2;
}

std::string test_name(const ::testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
}

// Those that compute a step in a moment.
INSTANTIATE_TEST_SUITE_P(Networks, EveryNetwork,
                         ::testing::Values("mlp", "small-mlp", "hdc", "lenet", "mnist-cnn",
                                           "cifar-cnn", "cifarnet", "resnet20", "resnet56",
                                           "resnet18", "resnet50", "googlenet", "alexnet-bn",
                                           "bn50", "lstm", "gpt"),
                         test_name);

void expect_a_hook_and_a_gradient_each(const char* name) {
  const auto network = Network::make(name, 0, 1);
  const Noise noise(network->takes(), few(network->takes()));
  std::size_t next = 0;
  bool backward = false;
  std::vector<int> gradients(network->parameters().size());
  network->step(
      noise.batch(),
      {.before_layer =
           [&](std::size_t first, std::size_t count) {
             EXPECT_EQ(first, next);
             EXPECT_GT(count, 0U);
             EXPECT_FALSE(backward);
             next = first + count;
           },
       .backward_begins = [&] { backward = true; },
       .on_gradient =
           [&](std::size_t i, const float* gradient, std::size_t elems) {
             EXPECT_TRUE(backward);
             ++gradients[i];
             EXPECT_EQ(elems, network->parameters()[i].elems);
             EXPECT_TRUE(std::any_of(gradient, gradient + elems, [](float g) { return g != 0; }))
                 << network->parameters()[i].name;
           }},
      0);
  EXPECT_EQ(next, network->parameters().size());
  EXPECT_EQ(gradients, std::vector<int>(gradients.size(), 1));
}

TEST_P(EveryNetwork, HasOneHookAndOneGradientForEveryParameter) {
  expect_a_hook_and_a_gradient_each(GetParam());
}

TEST(Networks, VggHasOneHookAndOneGradientForEveryParameter) {
  hold_library_threads();
  expect_a_hook_and_a_gradient_each("vgg-a");
}

// A network whose parameters are only filled in by the hook, and spoilt outside of their turn, has
// the same loss: so each call comes before the parameters are read.
TEST_P(EveryNetwork, ReadsNoParameterBeforeItsHook) {
  const auto source = Network::make(GetParam(), 0, 1);
  const auto network = Network::make(GetParam(), 0, 1);
  const Noise noise(network->takes(), few(network->takes()));
  const auto spoil = [&](std::size_t i) {
    std::ranges::fill(values_of(network->parameters()[i]), NAN);
  };
  for (std::size_t i = 0; i < network->parameters().size(); ++i) spoil(i);
  std::size_t spoilt = 0;
  const auto before = [&](std::size_t first, std::size_t count) {
    while (spoilt < first) spoil(spoilt++);
    for (std::size_t i = first; i < first + count; ++i) {
      std::ranges::copy(values_of(source->parameters()[i]),
                        values_of(network->parameters()[i]).begin());
    }
  };
  const auto outcome = network->step(
      noise.batch(), {.before_layer = before, .backward_begins = {}, .on_gradient = {}}, 0);
  EXPECT_EQ(outcome.loss, source->step(noise.batch(), {}, 0).loss);
}

TEST_P(EveryNetwork, HasTensorsWithoutBeingMade) {
  const auto network = Network::make(GetParam(), 0, 1);
  const auto tensors = Network::tensors(GetParam(), 0);
  ASSERT_EQ(tensors.size(), network->parameters().size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].name, network->parameters()[i].name);
    EXPECT_EQ(tensors[i].kind, network->parameters()[i].kind);
    EXPECT_EQ(tensors[i].shape, network->parameters()[i].shape);
    EXPECT_EQ(tensors[i].values, nullptr);
  }
}

TEST_P(EveryNetwork, HasTheSameBitsForTheSameSeed) {
  const auto network = Network::make(GetParam(), 0, 7);
  EXPECT_EQ(checksum_of(*network), checksum_of(*Network::make(GetParam(), 0, 7)));
  EXPECT_NE(checksum_of(*network), checksum_of(*Network::make(GetParam(), 0, 8)));
}

class LearningNetwork : public EveryNetwork {};

INSTANTIATE_TEST_SUITE_P(Networks, LearningNetwork,
                         ::testing::Values("mlp", "small-mlp", "hdc", "lenet", "mnist-cnn",
                                           "cifar-cnn", "cifarnet", "resnet20", "lstm", "gpt"),
                         test_name);

// A few steps of SGD with momentum on one batch.
TEST_P(LearningNetwork, LowersItsLoss) {
  constexpr float kRate = 0.01F;
  constexpr float kMomentum = 0.9F;
  const auto network = Network::make(GetParam(), 0, 1);
  const Noise noise(network->takes(), 4);
  std::vector<std::vector<float>> velocities;
  for (const auto& parameter : network->parameters()) velocities.emplace_back(parameter.elems);
  const auto descend = [&](std::size_t i, const float* gradient, std::size_t elems) {
    for (std::size_t k = 0; k < elems; ++k) {
      velocities[i][k] = kMomentum * velocities[i][k] + gradient[k];
    }
  };
  const auto step = [&] {
    return network
        ->step(noise.batch(), {.before_layer = {}, .backward_begins = {}, .on_gradient = descend},
               0)
        .loss;
  };
  const double first = step();
  double last = first;
  for (int i = 0; i < 12; ++i) {
    for (std::size_t p = 0; p < velocities.size(); ++p) {
      float* values = network->parameters()[p].values;
      for (std::size_t k = 0; k < velocities[p].size(); ++k) values[k] -= kRate * velocities[p][k];
    }
    last = step();
  }
  EXPECT_LT(last, 0.99 * first);
}

class DroppingNetwork : public EveryNetwork {};

INSTANTIATE_TEST_SUITE_P(Networks, DroppingNetwork,
                         ::testing::Values("lenet", "mnist-cnn", "cifar-cnn", "cifarnet", "lstm"),
                         test_name);

TEST_P(DroppingNetwork, DropsOutByTheDrawsAlone) {
  const auto network = [](std::optional<double> ratio) {
    return Network::make(GetParam(), 0, 1, ratio);
  };
  const Noise noise(network({})->takes(), 4);
  const auto loss = [&](double ratio, std::uint64_t draws) {
    return network(ratio)->step(noise.batch(), {}, draws).loss;
  };
  EXPECT_NE(loss(0.5, 1), loss(0, 1));
  EXPECT_NE(loss(0.5, 1), loss(0.5, 2));
  EXPECT_EQ(loss(0.5, 1), loss(0.5, 1));
  EXPECT_EQ(loss(0, 1), loss(0, 2));
  // None of it when labels are looked for.
  EXPECT_EQ(network(0.9)->test(noise.batch()).right, network(0)->test(noise.batch()).right);
}

TEST(Networks, DropOutTheirOwnPartUnlessTold) {
  const auto loss = [](const char* name, std::optional<double> ratio) {
    const auto network = Network::make(name, 0, 1, ratio);
    return network->step(Noise(network->takes(), 4).batch(), {}, 1).loss;
  };
  EXPECT_EQ(loss("lenet", {}), loss("lenet", 0));
  EXPECT_EQ(loss("cifarnet", {}), loss("cifarnet", 0.5));
  EXPECT_NE(loss("cifarnet", {}), loss("cifarnet", 0));
}

TEST(Networks, KeepStatisticsApartFromParameters) {
  const auto network = Network::make("resnet20", 0, 1);
  const Noise noise(network->takes(), 4);
  // A mean and a variance for each of the 19 normalizations, where the parameters have 2 as well.
  ASSERT_EQ(network->statistics().size(), 2U * 19);
  EXPECT_EQ(network->statistics()[0].name, "bn1.running_mean");
  EXPECT_EQ(network->statistics()[1].name, "bn1.running_var");
  const auto before = checksums_of(network->statistics());
  const std::string parameters = checksum_of(*network);
  network->test(noise.batch());
  EXPECT_EQ(checksums_of(network->statistics()), before);
  network->step(noise.batch(), {}, 0);
  const auto after = checksums_of(network->statistics());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_NE(after[i], before[i]) << network->statistics()[i].name;
  }
  EXPECT_EQ(checksum_of(*network), parameters);
  EXPECT_TRUE(Network::make("lenet", 0, 1)->statistics().empty());
}

TEST(Networks, OutcomeCountsLabelsOfText) {
  const auto network = Network::make("lstm", 11, 1);
  const Noise noise(network->takes(), 3);
  EXPECT_EQ(noise.batch().label_count, 15U);
  const std::size_t right = network->test(noise.batch()).right;
  EXPECT_LE(right, 15U);
  EXPECT_EQ(network->step(noise.batch(), {}, 0).right, right);
  EXPECT_NEAR(network->step(noise.batch(), {}, 0).loss, std::log(11), 0.3);
}

}  // namespace
}  // namespace tersewire::trainer
