// What an observed step shows, and that observing changes nothing.
#include "trainer/loop/observer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "trainer/data/image_samples.h"
#include "trainer/data/stroke_digits.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {
namespace {

Job job_with(const std::string& codec, std::uint64_t values) {
  Job job;
  job.tensors = {{.name = "fc.weight", .shape = {values}, .kind = TensorKind::kDense}};
  job.push_codec = codec;
  job.policy = "";
  return job;
}

std::uint64_t total(const Histograms::Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

TEST(Observer, SeesWhatTheCodecMakesOfGradientAndResidual) {
  const Job job = job_with("3lc:mode=paper", 5);
  const std::vector<float> gradient{0.9F, -0.1F, 0, 0.1F, -0.4F};
  const std::vector<float> residual{0.1F, 0, 0, 0, -0.1F};
  const TensorObservation seen = Observer(job, 0).look(0, 1, gradient, residual);
  // Their sum is 1, -0.1, 0, 0.1, -0.5: m is 1, so that 1, 0, 0, 0 and -1 travel.
  EXPECT_EQ(seen.name, "fc.weight");
  EXPECT_EQ(seen.kind, TensorKind::kDense);
  EXPECT_EQ(seen.values, 5U);
  EXPECT_EQ(seen.codec, make_codec("3lc:mode=paper")->text());
  EXPECT_NEAR(seen.rms, std::sqrt((0.81 + 0.01 + 0.01 + 0.16) / 5), 1e-6);
  EXPECT_NEAR(seen.relative_error, std::sqrt((0.01 + 0.01 + 0.25) / (1 + 0.01 + 0.01 + 0.25)),
              1e-6);
  EXPECT_NEAR(seen.residual_rms, std::sqrt(0.02 / 5), 1e-6);
  EXPECT_FLOAT_EQ(static_cast<float>(seen.residual_max), 0.1F);
  EXPECT_DOUBLE_EQ(seen.histograms.limit, 1);
  EXPECT_EQ(seen.histograms.decoded.front(), 1U);  // -1
  EXPECT_EQ(seen.histograms.decoded.back(), 1U);
  EXPECT_EQ(seen.histograms.decoded[Histograms::kBins / 2], 3U);
  EXPECT_EQ(seen.histograms.gradient.front(), 0U);
  EXPECT_EQ(total(seen.histograms.gradient), 5U);
  Bytes payload;
  make_codec("3lc:mode=paper")->make_encoder(5)->encode(gradient, 1, payload);
  EXPECT_EQ(seen.encoded_bytes, payload.size());
}

TEST(Observer, KnowsThatLocalUpdatesHaveNoLead) {
  Job job = job_with("3lc", 5);
  job.local_updates = 4;
  const std::vector<float> values{0.9F, -0.1F, 0, 0.1F, -0.4F};
  EXPECT_EQ(Observer(job, 0).look(0, 1, values, {}).codec, make_codec("3lc:lead=1")->text());
}

TEST(Observer, NamesTheMagnitudeBelowWhichMostOfTheResidualLies) {
  std::vector<float> residual(101);
  std::iota(residual.begin(), residual.end(), -100.0F);
  const Job job = job_with("3lc", residual.size());
  const std::vector<float> gradient(residual.size(), 1.0F);
  EXPECT_DOUBLE_EQ(Observer(job, 0).look(0, 1, gradient, residual).residual_p95, 95);
}

TEST(Observer, ShowsOfWhatIsNotFiniteTheResidualAlone) {
  const Job job = job_with("3lc", 2);
  const std::vector<float> gradient{1, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> residual{3, 4};
  const TensorObservation seen = Observer(job, 0).look(0, 1, gradient, residual);
  EXPECT_TRUE(seen.not_finite);
  EXPECT_EQ(seen.residual_max, 4);
  EXPECT_EQ(seen.encoded_bytes, 8U);
  EXPECT_EQ(seen.rms, 0);
  EXPECT_EQ(total(seen.histograms.gradient), 0U);
}

TEST(Observer, PutsZerosIntoTheMiddle) {
  const Job job = job_with("fp32", 3);
  const std::vector<float> zeros(3);
  const Histograms histograms = Observer(job, 0).look(0, 1, zeros, {}).histograms;
  EXPECT_EQ(histograms.limit, 0);
  EXPECT_EQ(histograms.gradient[Histograms::kBins / 2], 3U);
}

const DataSplits& small_data() {
  static const DataSplits data{std::make_shared<ImageSamples>(generate_stroke_digits(1, 0, 500)),
                               std::make_shared<ImageSamples>(generate_stroke_digits(1, 5000, 100)),
                               "small"};
  return data;
}

TrainConfig small_job(const std::string& exchange, const std::string& codec) {
  TrainConfig config;
  config.model = "small-mlp";
  config.job.workers = 2;
  config.steps = 12;
  config.batch = 8;
  config.job.exchange = exchange;
  config.job.push_codec = config.job.pull_codec = codec;
  config.observe_steps = 5;
  return config;
}

TEST(Observations, ChangeNothingInAnyExchange) {
  const std::pair<const char*, const char*> jobs[] = {
      {"parameter-server", "3lc"},
      {"gradient-server", "terngrad"},
      {"aggregator-tree", "3lc"},
      {"all-gather", "adacomp"},
      {"ring", "int8"},
      {"weight-average:every=4", "oland-raj:ef=on"}};
  for (const auto& [exchange, codec] : jobs) {
    TrainConfig config = small_job(exchange, codec);
    std::vector<Observation> seen;
    TrainHooks hooks;
    hooks.on_observation = [&](const Observation& observation) { seen.push_back(observation); };
    const std::string observed = train(config, small_data(), hooks).parameters_checksum;
    config.observe_steps = 0;
    EXPECT_EQ(observed, train(config, small_data(), {}).parameters_checksum) << exchange;
    ASSERT_EQ(seen.size(), 3U) << exchange;
    EXPECT_EQ(seen[0].step, 1U);
    EXPECT_EQ(seen[2].step, 11U);
    EXPECT_GT(seen[2].test_accuracy, 0);
    ASSERT_EQ(seen[2].tensors.size(), 6U);
    EXPECT_EQ(seen[2].tensors[0].name, "fc1.weight");
    for (const TensorObservation& tensor : seen[2].tensors) {
      EXPECT_EQ(total(tensor.histograms.gradient), tensor.values) << exchange << tensor.name;
    }
  }
}

TEST(Observations, ShowAResidualThatGrows) {
  std::vector<double> residuals;
  TrainHooks hooks;
  hooks.on_observation = [&](const Observation& observation) {
    residuals.push_back(observation.tensors[0].residual_rms);
  };
  train(small_job("parameter-server", "3lc"), small_data(), hooks);
  ASSERT_EQ(residuals.size(), 3U);
  EXPECT_EQ(residuals[0], 0);
  EXPECT_GT(residuals[1], 0);
}

}  // namespace
}  // namespace tersewire::trainer
