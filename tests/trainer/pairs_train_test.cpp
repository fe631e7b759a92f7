// Every codec in every exchange that takes it trains as fp32 does, within a stated distance: what
// does not is refused at the start. A network of two dense layers, written out, on the embedded
// images: the library alone is under test, and a run takes a tenth of a second.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "codec_traits.h"
#include "tersewire/tersewire.h"
#include "trainer/data/dataset.h"
#include "trainer/data/stroke_digits.h"

namespace tersewire {
namespace {

using Model = std::vector<std::vector<float>>;

constexpr std::size_t kInputs = 28 * 28;
constexpr std::size_t kHidden = 32;
constexpr std::size_t kClasses = 10;
constexpr std::size_t kTrainImages = 4000;
constexpr std::size_t kTestImages = 1000;

constexpr int kWorkers = 4;
constexpr std::size_t kBatch = 8;
constexpr std::uint64_t kSteps = 400;
// Those of `tersewire train`, with a cosine down to 0.
constexpr float kRate = 0.01F;
constexpr float kMomentum = 0.9F;

// As far as a run may stay behind fp32's in the same exchange, in shares of the test. Codecs that
// send a few of the values need more steps than these to deliver the others. Weights are averaged
// after every step here, whose changes are as small as what rounding loses.
double distance_of(CodecId codec) {
  const CodecTraits& traits = codec_traits(codec);
  if (traits.error == CodecTraits::Error::kUnsent) return 0.09;
  return traits.loses_small_changes ? 0.06 : 0.04;
}

struct Digits {
  std::vector<float> values;  // kInputs an image
  std::vector<std::uint16_t> labels;
};

Digits digits(std::size_t first, std::size_t count) {
  const trainer::Dataset data = trainer::generate_stroke_digits(1, first, count);
  Digits found{.values = std::vector<float>(data.pixels.size()), .labels = data.labels};
  std::ranges::transform(data.pixels, found.values.begin(), [](std::uint8_t pixel) {
    return (static_cast<float>(pixel) / 255 - 0.1307F) / 0.3081F;
  });
  return found;
}

const Digits& train_digits() {
  static const Digits found = digits(0, kTrainImages);
  return found;
}

const Digits& test_digits() {
  static const Digits found = digits(trainer::kEmbeddedTrainImages, kTestImages);
  return found;
}

// Weights are [in, out] here: inner loops then go along a row.
const std::vector<TensorInfo> kTensors{{"fc1.weight", {kInputs, kHidden}, TensorKind::kDense},
                                       {"fc1.bias", {kHidden}, TensorKind::kBias},
                                       {"fc2.weight", {kHidden, kClasses}, TensorKind::kDense},
                                       {"fc2.bias", {kClasses}, TensorKind::kBias}};

Model initial_model() {
  Model model;
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    trainer::CounterRandom random(1, 2, i);
    const auto bound = 1 / std::sqrt(static_cast<float>(i < 2 ? kInputs : kHidden));
    model.emplace_back(kTensors[i].elems());
    for (float& value : model.back()) value = random.uniform(-bound, bound);
  }
  return model;
}

// out += in times the matrix [in, out].
void add_product(std::span<const float> in, const std::vector<float>& matrix,
                 std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += in[i] * matrix[i * out.size() + j];
  }
}

struct Activations {
  std::vector<float> hidden;
  std::vector<float> scores;
};

Activations forward(const Model& model, std::span<const float> image) {
  Activations a{.hidden = model[1], .scores = model[3]};
  add_product(image, model[0], a.hidden);
  for (float& value : a.hidden) value = std::tanh(value);
  add_product(a.hidden, model[2], a.scores);
  return a;
}

std::span<const float> image_of(const Digits& data, std::size_t i) {
  return std::span(data.values).subspan(i * kInputs, kInputs);
}

// Adds the gradient of one image's cross entropy, times `weight`.
void add_gradient(const Model& model, std::span<const float> image, std::size_t label, float weight,
                  Model& gradient) {
  const Activations a = forward(model, image);
  const float largest = *std::ranges::max_element(a.scores);
  std::vector<float> errors(kClasses);
  float sum = 0;
  for (std::size_t c = 0; c < kClasses; ++c) sum += errors[c] = std::exp(a.scores[c] - largest);
  for (std::size_t c = 0; c < kClasses; ++c) {
    errors[c] = weight * (errors[c] / sum - (c == label ? 1.0F : 0.0F));
    gradient[3][c] += errors[c];
  }
  std::vector<float> hidden_errors(kHidden);
  for (std::size_t h = 0; h < kHidden; ++h) {
    for (std::size_t c = 0; c < kClasses; ++c) {
      gradient[2][h * kClasses + c] += a.hidden[h] * errors[c];
      hidden_errors[h] += model[2][h * kClasses + c] * errors[c];
    }
    hidden_errors[h] *= 1 - a.hidden[h] * a.hidden[h];
    gradient[1][h] += hidden_errors[h];
  }
  for (std::size_t i = 0; i < kInputs; ++i) {
    for (std::size_t h = 0; h < kHidden; ++h) {
      gradient[0][i * kHidden + h] += image[i] * hidden_errors[h];
    }
  }
}

double accuracy_of(const Model& model) {
  const Digits& test = test_digits();
  std::size_t right = 0;
  for (std::size_t i = 0; i < kTestImages; ++i) {
    const auto scores = forward(model, image_of(test, i)).scores;
    const auto found = std::ranges::max_element(scores) - scores.begin();
    if (found == test.labels[i]) ++right;
  }
  return static_cast<double>(right) / kTestImages;
}

// SGD with momentum, a part at a time, on a model that it owns a copy of the steps of.
class Descent {
 public:
  Update update() {
    return [this](const Part& part, std::span<const float> mean, std::span<float> delta) {
      const double done = static_cast<double>(taken_[part.number]++) / kSteps;
      const auto rate = kRate * static_cast<float>((1 + std::cos(std::numbers::pi * done)) / 2);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        float& velocity = velocity_[part.tensor][part.begin + i];
        velocity = kMomentum * velocity + mean[i];
        delta[i] = -rate * velocity;
        model_[part.tensor][part.begin + i] += delta[i];
      }
    };
  }

  [[nodiscard]] const Model& model() const { return model_; }

 private:
  Model model_ = initial_model();
  Model velocity_ = [] {
    Model zeros;
    for (const TensorInfo& tensor : kTensors) zeros.emplace_back(tensor.elems(), 0.0F);
    return zeros;
  }();
  std::map<std::size_t, std::uint64_t> taken_;  // by part
};

void run_worker(const Job& job, Transport& end, const Update& update, Model& replica) {
  const auto communicator = make_communicator(job, end, update);
  trainer::BatchSampler sampler(kTrainImages, kWorkers, static_cast<std::size_t>(end.rank()),
                                kBatch, 1);
  std::vector<std::uint32_t> batch;
  while (communicator->begin_step() <= kSteps) {
    for (std::size_t i = 0; i < replica.size(); ++i) communicator->pull(i, replica[i]);
    Model gradient;
    for (const TensorInfo& tensor : kTensors) gradient.emplace_back(tensor.elems(), 0.0F);
    sampler.next(batch);
    for (const std::uint32_t image : batch) {
      add_gradient(replica, image_of(train_digits(), image), train_digits().labels[image],
                   1.0F / kBatch, gradient);
    }
    for (std::size_t i = replica.size(); i-- > 0;) communicator->push(i, gradient[i]);
  }
  communicator->finish(std::vector<std::span<float>>(replica.begin(), replica.end()));
}

// Of the model after all steps: worker 0's replica, which all that is pulled has made.
double trained_accuracy(const Job& job) {
  const int nodes = job.workers + server_nodes(job);
  const auto ends = make_in_process_network(nodes);
  Model replicas[kWorkers];
  Descent own[kWorkers];
  Descent servers;
  std::vector<std::string> errors(static_cast<std::size_t>(nodes));
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    threads.emplace_back([&] {
      const int rank = end->rank();
      try {
        const auto owned =
            needs_update(job, rank)
                ? (exchange_traits(job.exchange).workers_own_model ? own[rank] : servers).update()
                : Update();
        if (rank >= job.workers) {
          run_server(job, *end, owned);
          return;
        }
        replicas[rank] = initial_model();
        run_worker(job, *end, owned, replicas[rank]);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return accuracy_of(exchange_traits(job.exchange).workers_own_model ? replicas[0]
                                                                     : servers.model());
}

Job job_of(const std::string& exchange, const std::string& codec) {
  Job job;
  job.tensors = kTensors;
  job.workers = kWorkers;
  job.exchange = exchange;
  job.push_codec = job.pull_codec = codec;
  job.deadline = std::chrono::seconds(60);
  return job;
}

// What a job is refused with; nothing where it is not.
std::optional<std::string> refusal(const Job& job) {
  try {
    server_nodes(job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return std::nullopt;
}

class EveryExchange : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Pairs, EveryExchange,
                         ::testing::Values("parameter-server", "gradient-server",
                                           "gradient-server:scaler-sharing=on",
                                           "aggregator-tree:fan-in=2", "all-gather", "ring",
                                           "hierarchical-ring:group=2", "weight-average"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST_P(EveryExchange, TrainsWithEveryCodecThatItTakes) {
  std::optional<double> fp32;
  int trained = 0;
  for (const CodecDescription& codec : codec_descriptions()) {
    const Job job = job_of(GetParam(), codec.name);
    if (const auto sentence = refusal(job)) {
      EXPECT_NE(sentence->find("use "), std::string::npos) << *sentence;
      continue;
    }
    const double accuracy = trained_accuracy(job);
    if (!fp32) fp32 = accuracy;
    EXPECT_GT(*fp32, 0.8);
    EXPECT_GT(accuracy, *fp32 - distance_of(codec.id)) << codec.name;
    ++trained;
  }
  EXPECT_GE(trained, 1);
}

// Every value of it is a part of what workers learn: without a residual this ends at 0.69.
TEST(ModelDeltas, KeepAResidualWhereTheirCodecWouldLoseThem) {
  Job job = job_of("parameter-server", "fp32");
  job.pull_codec = "inceptionn";
  const double accuracy = trained_accuracy(job);
  EXPECT_GT(accuracy, 0.82);
  job.pull_codec = "inceptionn:ef=on";
  EXPECT_EQ(trained_accuracy(job), accuracy);
}

TEST(ModelDeltas, AreRefusedWithoutOne) {
  for (const char* exchange : {"parameter-server", "aggregator-tree"}) {
    Job job = job_of(exchange, "fp32");
    job.pull_codec = "inceptionn:ef=off";
    EXPECT_NE(refusal(job).value_or("").find("omit ef=off"), std::string::npos) << exchange;
    job.pull_codec = "fp32";
    job.policy = "size<256:fp32; *:inceptionn:ef=off";
    EXPECT_NE(refusal(job).value_or("").find("omit ef=off"), std::string::npos) << exchange;
  }
  // What is pushed, and mean gradients, are not: the next step's gradient makes up for them.
  EXPECT_EQ(refusal(job_of("gradient-server", "inceptionn:ef=off")), std::nullopt);
  Job job = job_of("parameter-server", "inceptionn:ef=off");
  job.pull_codec = "fp32";
  EXPECT_EQ(refusal(job), std::nullopt);
}

}  // namespace
}  // namespace tersewire
