// The training loop as a whole: it learns, repeats to the bit, overlaps, ends when told.
#include "trainer/loop/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "tersewire/error.h"
#include "trainer/data/image_samples.h"
#include "trainer/data/stroke_digits.h"
#include "trainer/loop/evaluation.h"
#include "trainer/loop/local_nodes.h"
#include "trainer/loop/train_worker.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::trainer {
namespace {

const DataSplits& small_data() {
  static const DataSplits data{std::make_shared<ImageSamples>(generate_stroke_digits(1, 0, 1000)),
                               std::make_shared<ImageSamples>(generate_stroke_digits(1, 5000, 300)),
                               "small"};
  return data;
}

TrainConfig small_job() {
  TrainConfig config;
  config.model = "small-mlp";
  config.job.workers = 2;
  config.steps = 30;
  config.batch = 8;
  return config;
}

TrainConfig small_job(const std::string& exchange, const std::string& codec) {
  TrainConfig config = small_job();
  config.job.exchange = exchange;
  config.job.push_codec = config.job.pull_codec = codec;
  return config;
}

// Those in which every worker owns the model.
constexpr const char* kOwnedByWorkers[] = {"gradient-server", "all-gather", "ring",
                                           "weight-average"};

TEST(Train, LearnsWithEverythingCompressed) {
  TrainConfig config = small_job();
  config.steps = 250;
  config.job.push_codec = config.job.pull_codec = "3lc:s=1.5";
  const TrainResult result = train(config, small_data(), {});
  EXPECT_EQ(result.steps, 250U);
  EXPECT_GT(result.test_accuracy, 0.6);  // ten classes: chance is 0.1
  const Counters& counters = result.worker_counters;
  EXPECT_EQ(counters.pushed_values, 250 * 2 * result.values);
  EXPECT_EQ(counters.pulled_values, 250 * 2 * result.values);
  EXPECT_LT(8.0 * static_cast<double>(counters.pushed_bytes),
            1.6 * static_cast<double>(counters.pushed_values));
}

TEST(Train, RepeatsToTheBitAndDependsOnTheSeed) {
  TrainConfig config = small_job();
  config.job.servers = 2;
  const TrainResult once = train(config, small_data(), {});
  const TrainResult again = train(config, small_data(), {});
  EXPECT_EQ(once.parameters_checksum, again.parameters_checksum);
  EXPECT_EQ(once.final_loss, again.final_loss);
  EXPECT_EQ(once.worker_counters.pushed_bytes, again.worker_counters.pushed_bytes);
  config.job.seed = 2;
  EXPECT_NE(train(config, small_data(), {}).parameters_checksum, once.parameters_checksum);
}

// But for what they cut: each part has a scale.
TEST(Train, ServersAndThreadsDoNotChangeTheModel) {
  TrainConfig whole = small_job();
  whole.job.part_values = Job::kWholeTensors;
  const TrainConfig cut = small_job("parameter-server", "fp32");
  for (TrainConfig config : {whole, cut}) {
    SCOPED_TRACE(config.job.push_codec);
    const std::string one = train(config, small_data(), {}).parameters_checksum;
    config.job.servers = 3;
    EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, one);
  }
}

// LeNet's largest tensor is one that threads share.
TEST(Train, ThreadsOfTheCodecsDoNotChangeTheModel) {
  for (const char* codec : {"3lc", "terngrad", "inceptionn"}) {
    TrainConfig config;
    config.job.workers = 2;
    config.batch = 4;
    config.steps = 3;
    config.job.policy = "";
    config.job.push_codec = codec;
    config.threads = 1;
    const std::string alone = train(config, small_data(), {}).parameters_checksum;
    config.threads = 3;
    EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, alone) << codec;
  }
}

TEST(Train, LearnsWhereWorkersOwnTheModel) {
  for (const std::string exchange : kOwnedByWorkers) {
    SCOPED_TRACE(exchange);
    TrainConfig config = small_job(exchange, "int8");
    config.job.workers = 3;
    config.steps = 250;
    const TrainResult result = train(config, small_data(), {});
    EXPECT_EQ(result.steps, 250U);
    EXPECT_TRUE(result.workers_own_model);
    EXPECT_EQ(result.servers, exchange == "gradient-server" ? 1 : 0);
    EXPECT_EQ(result.servers_encode, result.servers > 0);
    EXPECT_GT(result.test_accuracy, 0.6);
  }
}

TEST(Train, RepeatsToTheBitWhereWorkersOwnTheModel) {
  for (const std::string exchange : kOwnedByWorkers) {
    SCOPED_TRACE(exchange);
    TrainConfig config = small_job(exchange, "inceptionn");
    const TrainResult once = train(config, small_data(), {});
    const TrainResult again = train(config, small_data(), {});
    EXPECT_EQ(once.parameters_checksum, again.parameters_checksum);
    EXPECT_EQ(once.final_loss, again.final_loss);
    EXPECT_EQ(once.worker_counters.pushed_bytes, again.worker_counters.pushed_bytes);
    config.job.seed = 2;
    EXPECT_NE(train(config, small_data(), {}).parameters_checksum, once.parameters_checksum);
  }
}

TEST(Train, WithoutCompressionAllExchangesComeToTheSameModel) {
  const auto come_to = [](const std::string& exchange) {
    TrainConfig config = small_job(exchange, "fp32");
    config.job.workers = 3;
    return train(config, small_data(), {});
  };
  const TrainResult servers_own = come_to("parameter-server");
  EXPECT_FALSE(servers_own.workers_own_model);
  for (const char* exchange : kOwnedByWorkers) {
    SCOPED_TRACE(exchange);
    const TrainResult result = come_to(exchange);
    EXPECT_NEAR(result.final_loss, servers_own.final_loss, 1e-5 * servers_own.final_loss);
    EXPECT_NEAR(result.test_accuracy, servers_own.test_accuracy, 0.01);
  }
  // Both add up in the order of ranks.
  EXPECT_EQ(come_to("all-gather").parameters_checksum,
            come_to("gradient-server").parameters_checksum);
}

TEST(Train, WhereServersLiveDoesNotChangeTheModel) {
  TrainConfig config = small_job();
  config.job.workers = 3;
  config.job.servers = 3;
  const TrainResult beside = train(config, small_data(), {});
  config.job.servers = Job::kColocated;
  const TrainResult colocated = train(config, small_data(), {});
  EXPECT_EQ(colocated.parameters_checksum, beside.parameters_checksum);
  EXPECT_EQ(colocated.test_accuracy, beside.test_accuracy);
  EXPECT_EQ(colocated.servers, 0);
  EXPECT_TRUE(colocated.servers_encode);
}

TEST(Train, ATreeOwnsTheModelAtItsRoot) {
  TrainConfig config = small_job("aggregator-tree:fan-in=2", "fp32");
  config.job.workers = 3;
  const TrainResult tree = train(config, small_data(), {});
  EXPECT_GT(tree.servers, 1);
  EXPECT_FALSE(tree.workers_own_model);
  config.job.exchange = "parameter-server";
  const TrainResult server = train(config, small_data(), {});
  EXPECT_NEAR(tree.final_loss, server.final_loss, 1e-5 * server.final_loss);
}

TEST(Train, LocalStepsAreExchangedOnceInSoMany) {
  TrainConfig config = small_job();
  config.steps = 31;
  config.job.local_steps = 4;
  const TrainResult result = train(config, small_data(), {});
  EXPECT_EQ(result.steps, 31U);
  EXPECT_EQ(result.worker_counters.pushed_values, 8 * 2 * result.values);
  EXPECT_EQ(result.worker_counters.pulled_values, 8 * 2 * result.values);
}

TEST(Train, LocalUpdatesAreExchangedOnceInSoMany) {
  TrainConfig config = small_job();
  config.steps = 31;
  config.job.local_updates = 4;
  const TrainResult result = train(config, small_data(), {});
  EXPECT_EQ(result.steps, 31U);
  EXPECT_EQ(result.worker_counters.pushed_values, 8 * 2 * result.values);
  EXPECT_EQ(result.worker_counters.pulled_values, 8 * 2 * result.values);
}

// Whose model is then its own, but for the rounding of what is added up.
TEST(Train, AWorkerAloneUnderPlainAveragingLearnsAsWithoutIt) {
  for (const char* exchange : {"parameter-server", "all-gather"}) {
    TrainConfig config = small_job(exchange, "fp32");
    config.job.workers = 1;
    config.optimizer = "adam";
    config.learning_rate = 0.001;
    const TrainResult alone = train(config, small_data(), {});
    config.job.local_updates = 7;
    config.outer = "sgd:lr=1";
    const TrainResult averaged = train(config, small_data(), {});
    EXPECT_NEAR(averaged.final_loss, alone.final_loss, 1e-4 * alone.final_loss);
    EXPECT_NEAR(averaged.test_loss, alone.test_loss, 1e-4 * alone.test_loss);
    config.outer = "sgd:lr=0.5";
    const double halved = train(config, small_data(), {}).test_loss;
    EXPECT_GT(std::abs(halved - alone.test_loss), 1e-3 * alone.test_loss);
  }
}

TEST(Train, LearnsByLocalUpdates) {
  for (const char* exchange : {"parameter-server", "gradient-server", "ring"}) {
    TrainConfig config = small_job(exchange, "int8");
    config.steps = 250;
    config.job.local_updates = 10;
    EXPECT_GT(train(config, small_data(), {}).test_accuracy, 0.6) << exchange;
  }
}

TEST(Train, OuterOptimizersThatMakeNoSenseAreRefused) {
  const auto expect_refused = [](const TrainConfig& config, const std::string& words) {
    try {
      check(config, small_data());
      ADD_FAILURE() << "accepted: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  TrainConfig config = small_job();
  config.outer = "sgd:lr=1";
  expect_refused(config, "use local updates");
  config.job.local_updates = 5;
  EXPECT_NO_THROW(check(config, small_data()));
  config.outer = "adam";
  expect_refused(config, "unknown outer optimizer 'adam'");
  config.outer = "nesterov:lr=0";
  expect_refused(config, "lr must be");
  config.outer = "nesterov:momentum=0";
  expect_refused(config, "above 0");
  config.outer = "sgd:rate=1";
  expect_refused(config, "unknown parameter 'rate'");
}

TrainConfig adam_job(const std::string& exchange, const std::string& codec) {
  TrainConfig config = small_job(exchange, codec);
  config.optimizer = "adamw";
  config.learning_rate = 0.001;
  config.schedule = "constant";
  config.steps = 10;
  return config;
}

TEST(Train, TheRateOfAdamIsTheCodecs) {
  const struct {
    const char* exchange;
    const char* codec;
    double gain;
  } cases[] = {{"parameter-server", "3lc", 1.5},
               {"gradient-server", "3lc:s=1.75", 2},
               {"all-gather", "int8", 1}};
  for (const auto& [exchange, codec, gain] : cases) {
    SCOPED_TRACE(codec);
    TrainConfig config = adam_job(exchange, codec);
    const TrainResult by_codec = train(config, small_data(), {});
    config.learning_rate *= gain;
    config.rate_gain = 1;
    EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, by_codec.parameters_checksum);
    config.learning_rate = 0.001;
    config.rate_gain = gain;
    EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, by_codec.parameters_checksum);
  }
}

// Which is what it would have been throughout, up to there.
TEST(Train, TheRateOfAdamIsTheLaterCodecsToo) {
  TrainConfig config = adam_job("all-gather", "3lc");
  config.later_codec = "9:3lc:s=1.75";
  const TrainResult changing = train(config, small_data(), {});
  config.rate_gain = 1.5;
  EXPECT_NE(train(config, small_data(), {}).parameters_checksum, changing.parameters_checksum);
  config.steps = 9;
  config.later_codec = "";
  const TrainResult before = train(config, small_data(), {});
  config.rate_gain.reset();
  EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, before.parameters_checksum);
}

TEST(Train, TheRateOfAdamIsThatOfWhatIsSent) {
  TrainConfig config = adam_job("all-gather", "3lc");
  config.job.policy = "*:fp32";
  const TrainResult as_it_is = train(config, small_data(), {});
  config.rate_gain = 1;
  EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, as_it_is.parameters_checksum);
}

TEST(Train, RatesOfOthersAreTheirOwn) {
  TrainConfig sgd = small_job("all-gather", "3lc");
  EXPECT_EQ(rate_gain(sgd, job_of(sgd))(1), 1);
  TrainConfig local = adam_job("all-gather", "3lc");
  local.job.local_updates = 5;
  EXPECT_EQ(rate_gain(local, job_of(local))(1), 1);
  TrainConfig weights = adam_job("weight-average", "fp32");
  EXPECT_EQ(rate_gain(weights, job_of(weights))(1), 1);
  for (TrainConfig config : {sgd, local, weights}) {
    config.rate_gain = 2;
    EXPECT_THROW(check(config, small_data()), Error);
  }
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    TrainConfig config = adam_job("all-gather", "3lc");
    config.rate_gain = wrong;
    EXPECT_THROW(check(config, small_data()), Error);
  }
}

TEST(Train, OneWorkerNeedsNobody) {
  for (const char* exchange : {"all-gather", "ring"}) {
    TrainConfig config = small_job(exchange, "fp32");
    config.job.workers = 1;
    const TrainResult result = train(config, small_data(), {});
    EXPECT_EQ(result.steps, 30U);
    EXPECT_EQ(result.busiest_node_bytes, 0U);
  }
}

TEST(Train, GradientServersDoNotChangeTheModel) {
  TrainConfig config = small_job("gradient-server", "3lc");
  config.job.part_values = Job::kWholeTensors;
  const std::string one = train(config, small_data(), {}).parameters_checksum;
  config.job.servers = 3;
  EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, one);
}

TEST(Train, TheBusiestNodeIsAServerOrWithoutThemAWorker) {
  const auto expect_part = [](const TrainResult& result, double part) {
    const Counters& workers = result.worker_counters;
    const double bytes = part * static_cast<double>(workers.pushed_bytes + workers.pulled_bytes);
    EXPECT_NEAR(static_cast<double>(result.busiest_node_bytes), bytes, 0.01 * bytes);
    const double values = part * static_cast<double>(workers.pushed_values + workers.pulled_values);
    EXPECT_EQ(static_cast<double>(result.busiest_node_values), values);
  };
  expect_part(train(small_job(), small_data(), {}), 1);
  expect_part(train(small_job("all-gather", "fp32"), small_data(), {}), 0.5);
}

// Ten bright and dark images, each a class, with noise: for networks that take images of CIFAR's
// size.
class ShadedImages final : public Samples {
 public:
  explicit ShadedImages(std::size_t size) : size_(size) {}

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  void append(std::size_t index, CounterRandom& /*draws*/, BatchMemory& batch) const override {
    CounterRandom noise(1, 2, index);
    const auto label = static_cast<std::int64_t>(index % 10);
    for (int i = 0; i < 3 * 32 * 32; ++i) {
      batch.values.push_back(static_cast<float>(label) + noise.uniform());
    }
    batch.labels.push_back(label);
  }
  [[nodiscard]] std::uint64_t checksum() const override { return size_; }

 private:
  std::size_t size_;
  SampleKind kind_{.shape = {3, 32, 32}, .classes = 10};
};

// The servers' model never sees a batch: it is tested with worker 0's running statistics. With
// those that every network starts with it finds one class in ten.
TEST(Train, ServersModelIsTestedWithAWorkersStatistics) {
  const auto images = std::make_shared<ShadedImages>(200);
  TrainConfig config = small_job("parameter-server", "fp32");
  config.model = "resnet20";
  config.steps = 80;
  config.learning_rate = 0.05;
  const TrainResult result = train(config, {images, images, "shades"}, {});
  EXPECT_FALSE(result.workers_own_model);
  EXPECT_GT(result.test_accuracy, 0.5);
}

TEST(Train, ModelTellsAsManyClassesApartAsTheDataHas) {
  Dataset digits = generate_stroke_digits(1, 0, 1000);
  digits.classes = 12;
  const auto images = std::make_shared<ImageSamples>(digits);
  TrainConfig config = small_job();
  config.steps = 1;
  // Two more rows of weights, and two biases.
  EXPECT_EQ(train(config, {images, images, "twelve"}, {}).values,
            train(config, small_data(), {}).values + 2 * 17);
}

TEST(Descent, AProposedStepIsTheOneThatWouldBeTaken) {
  const TrainConfig config = small_job();
  const auto moved = Network::make(config.model, 0, config.job.seed);
  const auto replica = Network::make(config.model, 0, config.job.seed);
  const std::vector<Part> parts = job_parts(job_of(config));
  Descent taker(config, *moved, parts);
  Descent proposer(config, *replica, parts);
  const auto values = values_of(replica->parameters()[0]);
  std::vector<float> gradient(values.size());
  std::iota(gradient.begin(), gradient.end(), -100.0F);
  for (float& value : gradient) value *= 1e-5F;
  std::vector<float> taken(values.size());
  std::vector<float> proposed(values.size());
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> before(values.begin(), values.end());
    taker.take_step(0, gradient, taken);
    proposer.propose_step(0, gradient, proposed);
    EXPECT_TRUE(std::ranges::equal(values, before));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NE(proposed[i], 0.0F);
      ASSERT_NEAR(proposed[i], taken[i], 1e-6);
      values[i] += proposed[i];
      ASSERT_NEAR(values[i], values_of(moved->parameters()[0])[i], 1e-6);
    }
  }
}

TEST(Train, EveryOptimizerLowersTheLossAndRepeatsToTheBit) {
  for (const auto& [optimizer, rate] :
       {std::pair("sgd", 0.05), std::pair("adam", 0.002), std::pair("adamw", 0.002)}) {
    SCOPED_TRACE(optimizer);
    TrainConfig config = small_job();
    config.optimizer = optimizer;
    config.learning_rate = rate;
    config.schedule = "polynomial";
    config.warm_up_steps = 10;
    config.l1 = 1e-5;
    config.steps = 120;
    double first_loss = 0;
    const TrainResult result = train(config, small_data(),
                                     {.on_step =
                                          [&](const StepReport& report) {
                                            if (report.step == 1) first_loss = report.loss;
                                          },
                                      .on_event = {},
                                      .stop = nullptr});
    EXPECT_LT(result.final_loss, 0.7 * first_loss);
    config.steps = 12;
    const std::string once = train(config, small_data(), {}).parameters_checksum;
    EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, once);
  }
}

TEST(Train, EachSettingOfTheDescentChangesTheModel) {
  const std::string plain = train(small_job(), small_data(), {}).parameters_checksum;
  const std::function<void(TrainConfig&)> changes[] = {
      [](TrainConfig& c) { c.optimizer = "adam"; }, [](TrainConfig& c) { c.schedule = "step"; },
      [](TrainConfig& c) { c.warm_up_steps = 5; },  [](TrainConfig& c) { c.l1 = 1e-3; },
      [](TrainConfig& c) { c.clip = 0.01; },
  };
  for (const auto& change : changes) {
    TrainConfig config = small_job();
    change(config);
    EXPECT_NE(train(config, small_data(), {}).parameters_checksum, plain);
  }
}

double moved_by(const TrainResult& result, const TrainConfig& config) {
  const auto initial = Network::make(config.model, 0, config.job.seed);
  double squares = 0;
  for (const Network::Parameter& parameter : initial->parameters()) {
    const std::vector<float>& values = result.model.at(parameter.name).values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double moved = values[i] - parameter.values[i];
      squares += moved * moved;
    }
  }
  return std::sqrt(squares);
}

TEST(Train, AGradientIsClippedToItsLength) {
  TrainConfig config = small_job("parameter-server", "fp32");
  config.job.workers = 1;
  config.steps = 1;
  config.learning_rate = 1;
  config.schedule = "constant";
  config.momentum = 0;
  config.weight_decay = 0;
  const TrainResult whole = train(config, small_data(), {});
  const double length = moved_by(whole, config);
  ASSERT_GT(length, 0.1);
  config.clip = 0.1;
  EXPECT_NEAR(moved_by(train(config, small_data(), {}), config), 0.1, 1e-5);
  config.clip = 1.01 * length;
  EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, whole.parameters_checksum);
  // Each worker's own, before what is pushed is averaged.
  config.clip = 0.1;
  config.job.workers = 2;
  EXPECT_LT(moved_by(train(config, small_data(), {}), config), 0.0999);
}

TEST(Train, TheTestLossIsThatOfTheTestedModel) {
  TrainConfig config = small_job("parameter-server", "fp32");
  const TrainResult result = train(config, small_data(), {});
  auto network = Network::make(config.model, 0, config.job.seed);
  const double before = test_of(*network, *small_data().test).loss;
  EXPECT_NEAR(before, std::log(10), 0.3);
  for (const Network::Parameter& parameter : network->parameters()) {
    std::ranges::copy(result.model.at(parameter.name).values, parameter.values);
  }
  const TestOutcome outcome = test_of(*network, *small_data().test);
  EXPECT_EQ(result.test_loss, outcome.loss);
  EXPECT_EQ(result.test_accuracy, outcome.accuracy);
  EXPECT_LT(result.test_loss, before);
}

// Each node on its own, as several processes would: what rank 0 knows of the others was sent to it.
TrainResult train_apart(const TrainConfig& config) {
  auto ends = join_network(config);
  std::optional<TrainResult> result;
  std::vector<std::thread> nodes;
  for (auto& end : ends) {
    nodes.emplace_back([&, end = std::move(end)]() mutable {
      const bool is_first = end->rank() == 0;
      std::vector<std::unique_ptr<Transport>> own;
      own.push_back(std::move(end));
      auto ended = train(config, small_data(), {}, std::move(own));
      if (is_first) result = std::move(ended);
    });
  }
  for (std::thread& node : nodes) node.join();
  return *result;
}

TEST(Train, TheMovingAverageIsTestedWhereverItIsKept) {
  for (const char* exchange : {"parameter-server", "all-gather"}) {
    SCOPED_TRACE(exchange);
    TrainConfig config = small_job(exchange, "fp32");
    if (exchange == std::string("parameter-server")) config.job.servers = 2;
    config.steps = 60;
    const TrainResult plain = train(config, small_data(), {});
    config.ema = 0.97;
    const TrainResult averaged = train(config, small_data(), {});
    EXPECT_EQ(averaged.parameters_checksum, plain.parameters_checksum);
    EXPECT_NE(averaged.test_accuracy, plain.test_accuracy);
    EXPECT_GT(averaged.test_accuracy, 0.15);
    const TrainResult apart = train_apart(config);
    EXPECT_EQ(apart.parameters_checksum, averaged.parameters_checksum);
    EXPECT_EQ(apart.test_accuracy, averaged.test_accuracy);
  }
}

// The sentence with which rank 0 ends where the others were started with `others`.
std::string disagreement(const TrainConfig& config, const TrainConfig& others) {
  auto ends = join_network(config);
  std::string sentence;
  std::vector<std::thread> nodes;
  for (auto& end : ends) {
    nodes.emplace_back([&, end = std::move(end)]() mutable {
      const bool is_first = end->rank() == 0;
      std::vector<std::unique_ptr<Transport>> own;
      own.push_back(std::move(end));
      try {
        train(is_first ? config : others, small_data(), {}, std::move(own));
      } catch (const Error& error) {
        if (is_first) sentence = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  return sentence;
}

TEST(Train, NodesMustAgreeOnTheDescent) {
  const TrainConfig config = small_job("all-gather", "fp32");
  const std::function<void(TrainConfig&)> changes[] = {
      [](TrainConfig& c) { c.optimizer = "adam"; }, [](TrainConfig& c) { c.schedule = "step"; },
      [](TrainConfig& c) { c.warm_up_steps = 5; },  [](TrainConfig& c) { c.l1 = 1e-3; },
      [](TrainConfig& c) { c.ema = 0.5; },
  };
  for (const auto& change : changes) {
    TrainConfig others = config;
    change(others);
    const std::string sentence = disagreement(config, others);
    EXPECT_NE(sentence.find("other arguments"), std::string::npos) << sentence;
  }
}

TEST(Train, CommunicationOverlapsComputation) {
  std::vector<TraceEvent> events;
  TrainConfig config = small_job();
  config.steps = 3;
  train(config, small_data(),
        {.on_step = {},
         .on_event = [&](const TraceEvent& event) { events.push_back(event); },
         .stop = nullptr});

  const auto at = [&](TraceKind kind, std::size_t tensor) {
    return std::ranges::find_if(events,
                                [&](const TraceEvent& event) {
                                  return event.step == 2 && event.kind == kind &&
                                         event.tensor == tensor;
                                }) -
           events.begin();
  };
  constexpr std::size_t kLast = 5;  // "fc3.bias"
  const auto end = static_cast<std::ptrdiff_t>(events.size());
  // The last layer's push is on its way while the backward pass goes on to the first.
  EXPECT_LT(at(TraceKind::kBackwardBegin, 0), at(TraceKind::kPushed, kLast));
  EXPECT_LT(at(TraceKind::kPushed, kLast), at(TraceKind::kPushed, 0));
  EXPECT_LT(at(TraceKind::kPushed, 0), at(TraceKind::kBackwardEnd, 0));
  EXPECT_LT(at(TraceKind::kBackwardEnd, 0), end);
  // The forward pass pulls layer by layer, not all at its start.
  for (std::size_t i = 0; i < kLast; ++i) {
    EXPECT_LT(at(TraceKind::kPulled, i), at(TraceKind::kPulled, i + 1));
  }
  EXPECT_LT(at(TraceKind::kPulled, kLast), at(TraceKind::kBackwardBegin, 0));
}

void expect_to_end_when_told(TrainConfig config) {
  std::atomic<bool> stop{false};
  config.steps = 100000;
  std::uint64_t seen = 0;
  const TrainResult result = train(config, small_data(),
                                   {.on_step =
                                        [&](const StepReport& report) {
                                          seen = report.step;
                                          if (report.step == 20) stop = true;
                                        },
                                    .on_event = {},
                                    .stop = &stop});
  EXPECT_EQ(result.steps, seen);
  EXPECT_GE(result.steps, 20U);
  EXPECT_LT(result.steps, 100U);
  EXPECT_EQ(result.worker_counters.pushed_values, 2 * result.steps * result.values);
}

TEST(Train, EndsWhenToldWithAllWorkersAtTheSameStep) {
  expect_to_end_when_told(small_job());
  for (const char* exchange : kOwnedByWorkers) {
    SCOPED_TRACE(exchange);
    expect_to_end_when_told(small_job(exchange, "fp32"));
  }
}

// A rate past what a float holds.
TrainConfig job_that_diverges() {
  TrainConfig config = small_job("parameter-server", "int8");
  config.learning_rate = 1e30;
  return config;
}

TEST(Train, ALossThatIsNotFiniteEndsTheRunForAll) {
  TrainConfig config = job_that_diverges();
  const TrainResult ended = train(config, small_data(), {});
  ASSERT_TRUE(ended.diverged_step);
  EXPECT_GE(ended.steps, *ended.diverged_step);
  EXPECT_LT(ended.steps, 10U);
  EXPECT_FALSE(std::isfinite(ended.final_loss));
  EXPECT_EQ(ended.worker_counters.pushed_values, 2 * ended.steps * ended.values);
  config.keep_going = true;
  std::optional<std::uint64_t> told;
  const TrainResult whole = train(
      config, small_data(),
      {.on_step = [&](const StepReport& report) { told = report.diverged_step; }, .on_event = {}});
  EXPECT_EQ(whole.steps, config.steps);
  EXPECT_EQ(whole.diverged_step, ended.diverged_step);
  EXPECT_TRUE(told);
}

TEST(Train, ALossThatGrowsTenfoldHasDiverged) {
  TrainConfig config = small_job("parameter-server", "fp32");
  EXPECT_EQ(train(config, small_data(), {}).diverged_step, std::nullopt);
  config.learning_rate = 30;
  config.momentum = 0;
  const TrainResult result = train(config, small_data(), {});
  EXPECT_TRUE(std::isfinite(result.final_loss));
  EXPECT_TRUE(result.diverged_step);
  EXPECT_EQ(result.steps, config.steps);
}

// As several processes would: each node is told on its own to end.
TEST(Train, AServerThatIsToldToEndEndsTheJob) {
  for (const char* exchange : {"parameter-server", "gradient-server"}) {
    SCOPED_TRACE(exchange);
    TrainConfig config = small_job(exchange, "fp32");
    config.steps = 3000;
    auto ends = join_network(config);
    const std::atomic<bool> stop{true};
    std::vector<ErrorCode> codes(ends.size());
    std::vector<std::thread> nodes;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      nodes.emplace_back([&, rank, end = std::move(ends[rank])]() mutable {
        std::vector<std::unique_ptr<Transport>> own;
        own.push_back(std::move(end));
        try {
          train(config, small_data(),
                {.on_step = {}, .on_event = {}, .stop = rank == 2 ? &stop : nullptr},
                std::move(own));
        } catch (const Error& error) {
          codes[rank] = error.code();
        }
      });
    }
    for (std::thread& node : nodes) node.join();
    EXPECT_EQ(codes[0], ErrorCode::kAborted);
    EXPECT_EQ(codes[1], ErrorCode::kAborted);
    EXPECT_EQ(codes[2], ErrorCode::kCancelled);
  }
}

TEST(StopPoint, OneOfSeveralProcessesEndsTheJobInstead) {
  std::atomic<bool> stop{false};
  StopPoint here(10, &stop, true, 0);
  StopPoint elsewhere(10, &stop, false, 0);
  EXPECT_FALSE(here.passed(3));
  EXPECT_FALSE(elsewhere.passed(3));
  stop = true;
  EXPECT_FALSE(here.passed(3));
  EXPECT_TRUE(here.passed(4));
  EXPECT_NO_THROW(here.check());
  for (const auto& call : {std::function<void()>([&] { elsewhere.passed(4); }),
                           std::function<void()>([&] { elsewhere.check(); })}) {
    try {
      call();
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
  }
}

TEST(StopPoint, EndsAfterAStepWhoseStateCanBeSaved) {
  std::atomic<bool> stop{false};
  StopPoint point(20, &stop, true, 4);
  EXPECT_FALSE(point.passed(6));
  stop = true;
  EXPECT_FALSE(point.passed(5));
  EXPECT_EQ(point.last(), 8U);
  EXPECT_EQ(point.state_after(), 8U);
  EXPECT_FALSE(point.passed(8));
  EXPECT_TRUE(point.passed(9));
  // After the last step there is nothing to go on with.
  StopPoint late(20, &stop, true, 4);
  EXPECT_FALSE(late.passed(18));
  EXPECT_EQ(late.last(), 20U);
  EXPECT_EQ(late.state_after(), 0U);
}

TEST(StopPoint, ItsStateIsThatOfAStepThatNoOtherHasBegun) {
  std::atomic<bool> stop{false};
  StopPoint point(20, &stop, true, 1);
  EXPECT_FALSE(point.passed(6));
  stop = true;
  EXPECT_FALSE(point.passed(6));
  EXPECT_EQ(point.state_after(), 7U);
  EXPECT_EQ(point.asker(), 0);
  StopPoint first(20, &stop, true, 1);
  EXPECT_FALSE(first.passed(6));
  EXPECT_EQ(first.state_after(), 6U);
}

TEST(Train, BackupWorkersAreAllowed) {
  TrainConfig config = small_job();
  config.job.workers = 3;
  config.job.backup_workers = 1;
  const TrainResult result = train(config, small_data(), {});
  EXPECT_EQ(result.steps, 30U);
}

void expect_refused(const std::function<void(TrainConfig&)>& change, const std::string& part) {
  TrainConfig config = small_job();
  change(config);
  try {
    train(config, small_data(), {});
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Train, JobsThatMakeNoSenseAreRefused) {
  expect_refused([](TrainConfig& c) { c.model = "perceptron"; }, "perceptron");
  expect_refused([](TrainConfig& c) { c.transport = "pigeon"; }, "pigeon");
  expect_refused([](TrainConfig& c) { c.job.exchange = "relay"; }, "unknown exchange 'relay'");
  expect_refused([](TrainConfig& c) { c.job.exchange = "ring"; }, "3lc does not fit");
  expect_refused(
      [](TrainConfig& c) {
        c.job.exchange = "all-gather";
        c.job.servers = 1;
      },
      "no servers");
  expect_refused([](TrainConfig& c) { c.job.push_codec = "3lc:s=30"; }, "s must be");
  expect_refused([](TrainConfig& c) { c.job.workers = 0; }, "at least 1 worker");
  expect_refused([](TrainConfig& c) { c.job.servers = 0; }, "0 servers");
  expect_refused(
      [](TrainConfig& c) {
        c.job.servers = 7;
        c.job.part_values = Job::kWholeTensors;
      },
      "7 servers");
  expect_refused([](TrainConfig& c) { c.steps = 0; }, "at least 1 step");
  expect_refused([](TrainConfig& c) { c.batch = 501; }, "batch");
  expect_refused([](TrainConfig& c) { c.learning_rate = 0; }, "learning rate");
  expect_refused([](TrainConfig& c) { c.momentum = 1; }, "momentum");
  expect_refused([](TrainConfig& c) { c.weight_decay = -1; }, "weight decay");
  expect_refused([](TrainConfig& c) { c.l1 = -1; }, "l1");
  expect_refused([](TrainConfig& c) { c.ema = 1; }, "moving average");
  expect_refused([](TrainConfig& c) { c.schedule = "cosin"; }, "unknown schedule 'cosin'");
  expect_refused([](TrainConfig& c) { c.optimizer = "adam:beta3=1"; }, "beta1, beta2 and eps");
  expect_refused([](TrainConfig& c) { c.warm_up_steps = 31; }, "warm-up of 31 steps");
  expect_refused([](TrainConfig& c) { c.job.policy = "kind=conv:fp32"; }, "matches none");
}

TEST(Train, ImagesOfAnotherSizeAreRefused) {
  for (const int side : {14, 27, 29, 32}) {
    Dataset images = generate_stroke_digits(1, 0, 1000);
    images.height = images.width = side;
    images.pixels.resize(images.size() * images.image_bytes());
    const auto samples = std::make_shared<ImageSamples>(images);
    const DataSplits data{samples, samples, "small"};
    try {
      train(small_job(), data, {});
      ADD_FAILURE() << "accepted " << side;
    } catch (const Error& error) {
      const std::string size = std::to_string(side) + " x " + std::to_string(side);
      EXPECT_NE(std::string(error.what()).find(size), std::string::npos) << error.what();
    }
  }
}

TEST(Train, AnOnStepThatThrowsEndsTheJob) {
  TrainHooks hooks;
  hooks.on_step = [](const StepReport&) {
    throw Error(ErrorCode::kResourceExhausted, "the disk is full");
  };
  try {
    train(small_job(), small_data(), hooks);
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
}

TEST(DefaultPullCodec, KeepsNoResidualOfMeansForAdam) {
  TrainConfig config;
  config.job.exchange = "gradient-server:scaler-sharing=off";
  EXPECT_EQ(default_pull_codec(config, "3lc"), "3lc");
  for (const char* optimizer : {"adam", "adamw:beta2=0.95"}) {
    config.optimizer = optimizer;
    EXPECT_EQ(default_pull_codec(config, "3lc:s=1.5"), "3lc:s=1.5,ef=off");
  }
  EXPECT_EQ(default_pull_codec(config, kAutoCodec), kAutoPullWithoutResidual);
  const auto expect_kept = [](const TrainConfig& other) {
    EXPECT_EQ(default_pull_codec(other, "3lc"), "3lc");
  };
  TrainConfig rounds = config;
  rounds.job.local_updates = 2;
  expect_kept(rounds);
  for (const char* exchange : {"parameter-server", "all-gather", "ring"}) {
    config.job.exchange = exchange;
    expect_kept(config);
  }
}

TEST(StepsForEpochs, CountsWholeSteps) {
  EXPECT_EQ(steps_for_epochs(1, 1000, 4, 16), 16U);
  EXPECT_EQ(steps_for_epochs(2.5, 60000, 10, 32), 469U);
  EXPECT_THROW(steps_for_epochs(0, 1000, 4, 16), Error);
}

}  // namespace
}  // namespace tersewire::trainer
