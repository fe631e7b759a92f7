// The trainer's descent: learning rates and optimizers against their formulas, averages, and runs
// that resume to the bit.
#include "trainer/loop/descent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "tersewire/error.h"
#include "trainer/loop/evaluation.h"

namespace tersewire::trainer {
namespace {

std::string sentence_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

double rate(const std::string& text, std::uint64_t step, std::uint64_t steps = 1000) {
  return Schedule(text, {.steps = steps}).at(step);
}

TEST(Schedule, FollowsItsFormula) {
  EXPECT_EQ(rate("constant", 0), 1);
  EXPECT_EQ(rate("constant", 999), 1);

  EXPECT_EQ(rate("cosine", 0), 1);
  EXPECT_NEAR(rate("cosine", 500), 0.505, 1e-12);
  EXPECT_NEAR(rate("cosine:end=0", 250), (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(rate("cosine:end=0.2", 1000), 0.2, 1e-12);

  EXPECT_EQ(rate("polynomial", 0), 1);
  EXPECT_NEAR(rate("polynomial", 640), 0.6, 1e-12);
  EXPECT_NEAR(rate("polynomial:power=2,end=0.1", 500), 0.325, 1e-12);
  EXPECT_EQ(rate("polynomial", 1000), 0);

  EXPECT_NEAR(rate("exponential:factor=0.5,every=100", 100), 0.5, 1e-12);
  EXPECT_NEAR(rate("exponential:factor=0.5,every=100", 350), std::pow(0.5, 3.5), 1e-12);
  EXPECT_NEAR(rate("exponential", 1000), 0.01, 1e-12);
}

TEST(Schedule, StepsFallAtTheirMarks) {
  for (const char* text :
       {"step", "step:at=0.5/0.75,factor=0.1", "step:at=500/750", "step:at=750/0.5"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(rate(text, 0), 1);
    EXPECT_EQ(rate(text, 499), 1);
    EXPECT_EQ(rate(text, 500), 0.1);
    EXPECT_EQ(rate(text, 749), 0.1);
    EXPECT_NEAR(rate(text, 750), 0.01, 1e-12);
    EXPECT_NEAR(rate(text, 999), 0.01, 1e-12);
  }
  for (const char* text : {"step:factor=0.2,every=200", "step:factor=0.2,every=0.2"}) {
    EXPECT_EQ(rate(text, 199), 1);
    EXPECT_EQ(rate(text, 200), 0.2);
    EXPECT_NEAR(rate(text, 999), std::pow(0.2, 4), 1e-12);
  }
}

TEST(Schedule, MarksInStepsKeepTheirPartOfAnotherRun) {
  for (const auto& [text, scaled] :
       {std::pair{"step:at=500/750,factor=0.1", "step:factor=0.1,at=0.5/0.75"},
        std::pair{"step:at=250/0.5/2000", "step:at=0.25/0.5/200"},
        std::pair{"step:factor=0.2,every=200", "step:factor=0.2,every=0.2"},
        std::pair{"exponential:every=3000", "exponential:every=300"},
        std::pair{"step:at=0.5,factor=0.2", "step:at=0.5,factor=0.2"}, std::pair{"step", "step"},
        std::pair{"cosine:end=0.1", "cosine:end=0.1"}}) {
    EXPECT_EQ(scaled_schedule(text, 1000, 100), scaled);
    for (const std::uint64_t step : {0, 24, 25, 49, 50, 74, 75, 99}) {
      EXPECT_NEAR(rate(scaled, step, 100), rate(text, step * 10, 1000), 1e-12) << scaled << step;
    }
  }
}

TEST(Schedule, DoesNotGoOnAfterItsEnd) {
  for (const char* text : {"cosine", "polynomial"}) {
    EXPECT_EQ(rate(text, 1001), rate(text, 1000)) << text;
  }
}

TEST(Schedule, WarmUpRisesToItFromTheRateOfOneWorker) {
  for (const char* text : {"constant", "cosine", "polynomial", "step", "exponential"}) {
    SCOPED_TRACE(text);
    const Schedule warm(text, {.steps = 1000, .warm_up = 100, .workers = 8});
    EXPECT_EQ(warm.at(0), 0.125);
    EXPECT_NEAR(warm.at(50), rate(text, 50) * 0.5625, 1e-12);
    for (const std::uint64_t step : {100, 101, 999}) EXPECT_EQ(warm.at(step), rate(text, step));
    // Each step adds an eighth of 0.07 and takes a little: no jump, at the end neither.
    for (std::uint64_t step = 0; step < 100; ++step) {
      EXPECT_LT(std::abs(warm.at(step + 1) - warm.at(step)), 0.009) << step;
    }
  }
}

TEST(Schedule, RefusesWhatItIsNot) {
  const auto refused = [](const std::string& text) {
    return sentence_of([&] { Schedule(text, {.steps = 1000}); });
  };
  expect_has(refused("polynomal"), "unknown schedule 'polynomal'; use constant, cosine");
  expect_has(refused(""), "unknown schedule ''");
  expect_has(refused("cosine:ends=1"), "unknown parameter 'ends'; cosine has end");
  expect_has(refused("exponential:start=1"), "exponential has factor and every");
  expect_has(refused("constant:end=0"), "constant has no parameters");
  expect_has(refused("cosine:end=2"), "end must be a number from 0 to below 1, not '2'");
  expect_has(refused("cosine:end=nan"), "not 'nan'");
  expect_has(refused("cosine:end"), "'end' is not a parameter");
  expect_has(refused("cosine:"), "'' is not a parameter");
  expect_has(refused("cosine:end=0,end=0"), "end is given twice");
  expect_has(refused("step:every=5,at=0.5"), "give at or every, not both");
  for (const char* mark : {"0", "-1", "1.5", "0.5/", "half", "inf"}) {
    expect_has(refused(std::string("step:at=") + mark), "or a whole number of steps");
  }
  expect_has(sentence_of([] { Schedule("cosine", {.steps = 99, .warm_up = 100}); }),
             "a warm-up of 100 steps is longer than the run of 99");
}

constexpr std::size_t kValues = 19;  // whole vectors and a rest

float gradient_at(std::uint64_t step, std::size_t i) {
  return std::sin(static_cast<float>(step * kValues + i));
}

std::vector<float> gradient_of(std::uint64_t step, std::size_t elems = kValues) {
  std::vector<float> gradient(elems);
  for (std::size_t i = 0; i < elems; ++i) gradient[i] = gradient_at(step, i);
  return gradient;
}

// Values of both signs, and a zero.
std::vector<float> initial_values() {
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < kValues; ++i) values[i] = 0.1F * (static_cast<float>(i) - 9);
  return values;
}

double sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

// Five steps of a rate that changes, beside `reference`, which does the same to one value.
void expect_to_follow(const OptimizerSettings& settings,
                      const std::function<void(double& value, double gradient, double rate,
                                               std::size_t i, int step)>& reference) {
  std::vector<float> values = initial_values();
  std::vector<double> expected(values.begin(), values.end());
  const auto optimizer = Optimizer::make(settings, values.data(), values.size());
  for (int step = 0; step < 5; ++step) {
    const double rate = 0.1 / (1 + step);
    const std::vector<float> gradient = gradient_of(static_cast<std::uint64_t>(step));
    optimizer->step(gradient.data(), rate, static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < kValues; ++i) {
      const double decay = settings.weight_decay * expected[i];
      double penalized = gradient[i] + settings.l1 * sign(expected[i]);
      if (settings.kind == OptimizerSettings::Kind::kAdamW) {
        expected[i] -= rate * decay;
      } else {
        penalized += decay;
      }
      reference(expected[i], penalized, rate, i, step);
      ASSERT_NEAR(values[i], expected[i], 2e-6) << "step " << step << ", value " << i;
    }
  }
}

TEST(Optimizer, SgdFollowsItsFormula) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double l1 : {0.0, 0.01}) {
      std::vector<double> velocity(kValues);
      expect_to_follow(
          {.momentum = momentum, .weight_decay = 0.05, .l1 = l1},
          [&](double& value, double gradient, double rate, std::size_t i, int /*step*/) {
            velocity[i] = momentum * velocity[i] + gradient;
            value -= rate * velocity[i];
          });
    }
  }
}

// As torch has it: a look ahead along the new velocity.
TEST(Optimizer, NesterovFollowsItsFormula) {
  std::vector<double> velocity(kValues);
  expect_to_follow({.kind = OptimizerSettings::Kind::kNesterov, .momentum = 0.9},
                   [&](double& value, double gradient, double rate, std::size_t i, int /*step*/) {
                     velocity[i] = 0.9 * velocity[i] + gradient;
                     value -= rate * (gradient + 0.9 * velocity[i]);
                   });
}

class EveryAdam : public ::testing::TestWithParam<OptimizerSettings::Kind> {};

INSTANTIATE_TEST_SUITE_P(Optimizer, EveryAdam,
                         ::testing::Values(OptimizerSettings::Kind::kAdam,
                                           OptimizerSettings::Kind::kAdamW));

TEST_P(EveryAdam, FollowsItsFormula) {
  std::vector<double> mean(kValues);
  std::vector<double> square(kValues);
  const OptimizerSettings settings{.kind = GetParam(),
                                   .beta1 = 0.8,
                                   .beta2 = 0.95,
                                   .eps = 1e-3,
                                   .weight_decay = 0.05,
                                   .l1 = 0.01};
  expect_to_follow(settings,
                   [&](double& value, double gradient, double rate, std::size_t i, int step) {
                     mean[i] = 0.8 * mean[i] + 0.2 * gradient;
                     square[i] = 0.95 * square[i] + 0.05 * gradient * gradient;
                     const double unbiased_mean = mean[i] / (1 - std::pow(0.8, step + 1));
                     const double unbiased_square = square[i] / (1 - std::pow(0.95, step + 1));
                     value -= rate * unbiased_mean / (std::sqrt(unbiased_square) + 1e-3);
                   });
}

TEST(Optimizer, HasTheBuffersOfItsKind) {
  std::vector<float> values = initial_values();
  const auto names = [&](const OptimizerSettings& settings) {
    std::string text;
    const auto optimizer = Optimizer::make(settings, values.data(), kValues);
    for (const Optimizer::Buffer& buffer : optimizer->buffers()) {
      text += buffer.name + ' ';
      EXPECT_TRUE(std::all_of(buffer.values, buffer.values + kValues,
                              [](float value) { return value == 0; }));
    }
    return text;
  };
  EXPECT_EQ(names({}), "");
  EXPECT_EQ(names({.momentum = 0.5}), "momentum ");
  for (const auto kind : {OptimizerSettings::Kind::kAdam, OptimizerSettings::Kind::kAdamW}) {
    EXPECT_EQ(names({.kind = kind}), "exp_avg exp_avg_sq ");
  }
}

constexpr std::size_t kBias = 1;  // "fc1.bias"

TrainConfig plain_config() {
  TrainConfig config;
  config.model = "mlp";
  config.steps = 20;
  config.momentum = 0;
  config.weight_decay = 0;
  return config;
}

// Its tensors, as parts.
std::vector<Part> whole_parts(const Network& network) {
  std::vector<Part> parts;
  for (const auto& parameter : network.parameters()) {
    parts.push_back(
        {.number = parts.size(), .tensor = parts.size(), .begin = 0, .elems = parameter.elems});
  }
  return parts;
}

// A model and what moves one tensor of it.
struct Mover {
  explicit Mover(const TrainConfig& config, std::uint64_t seed = 1)
      : network(Network::make(config.model, 0, seed)),
        descent(config, *network, whole_parts(*network)) {}

  [[nodiscard]] std::span<float> values() const { return values_of(network->parameters()[kBias]); }

  void step(std::uint64_t number) {
    std::vector<float> delta(values().size());
    descent.take_step(kBias, gradient_of(number, delta.size()), delta);
  }

  std::unique_ptr<Network> network;
  Descent descent;
};

TEST(Descent, FollowsTheSchedule) {
  TrainConfig config = plain_config();
  config.learning_rate = 0.5;
  config.scale_learning_rate = true;
  config.job.workers = 3;
  config.schedule = "polynomial";
  config.warm_up_steps = 8;
  config.job.local_steps = 3;
  Mover mover(config);
  const Schedule schedule("polynomial", {.steps = 21, .warm_up = 8, .workers = 3});
  std::vector<float> delta(mover.values().size());
  const std::vector<float> ones(delta.size(), 1.0F);
  for (std::uint64_t step = 0; step < 7; ++step) {
    EXPECT_EQ(mover.descent.steps_taken(kBias), step);
    mover.descent.take_step(kBias, ones, delta);
    for (const float change : delta) ASSERT_NEAR(change, -1.5 * schedule.at(3 * step), 1e-6);
  }
  EXPECT_EQ(mover.descent.steps_taken(0), 0U);
}

TEST(Descent, TheDefaultFallsToAHundredthAlongACosine) {
  TrainConfig config = plain_config();
  config.learning_rate = 1;
  Mover mover(config);
  std::vector<float> delta(mover.values().size());
  const std::vector<float> ones(delta.size(), 1.0F);
  for (int step = 0; step < 20; ++step) {
    mover.descent.take_step(kBias, ones, delta);
    const double expected = 0.01 + 0.99 * (1 + std::cos(std::numbers::pi * step / 20)) / 2;
    for (const float change : delta) ASSERT_NEAR(change, -expected, 1e-5);
  }
}

TEST(Descent, KeepsAsManyArraysAsItSays) {
  const auto kept = [](const char* optimizer, double momentum, double ema) {
    TrainConfig config = plain_config();
    config.optimizer = optimizer;
    config.momentum = momentum;
    config.ema = ema;
    EXPECT_EQ(arrays_of_descent(config), Mover(config).descent.state(kBias).buffers.size());
    return arrays_of_descent(config);
  };
  EXPECT_EQ(kept("sgd", 0, 0), 0U);
  EXPECT_EQ(kept("nesterov", 0.9, 0), 1U);
  EXPECT_EQ(kept("sgd", 0.9, 0.5), 2U);
  EXPECT_EQ(kept("adam:beta1=0.8", 0, 0), 2U);
  EXPECT_EQ(kept("adamw", 0.9, 0.5), 3U);
}

TEST(Descent, AveragesTheValuesOfAllSteps) {
  TrainConfig config = plain_config();
  config.learning_rate = 0.5;
  config.ema = 0.4;  // reached after 5 steps: (1 + 5) / (10 + 5)
  Mover mover(config);
  const auto start = mover.values();
  std::vector<double> expected(start.begin(), start.end());
  for (std::uint64_t step = 1; step <= 8; ++step) {
    mover.step(step);
    const auto t = static_cast<double>(step);
    const double decay = step < 5 ? (1 + t) / (10 + t) : 0.4;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = decay * expected[i] + (1 - decay) * mover.values()[i];
      ASSERT_NEAR(mover.descent.average(kBias)[i], expected[i], 1e-6) << step;
    }
  }
}

TEST(Descent, AveragesWhatAProposalWouldLeadTo) {
  TrainConfig config = plain_config();
  config.ema = 0.9;
  Mover taker(config);
  Mover proposer(config);
  for (std::uint64_t step = 0; step < 5; ++step) {
    taker.step(step);
    std::vector<float> delta(proposer.values().size());
    proposer.descent.propose_step(kBias, gradient_of(step, delta.size()), delta);
    for (std::size_t i = 0; i < delta.size(); ++i) {
      proposer.values()[i] += delta[i];
      ASSERT_NEAR(proposer.descent.average(kBias)[i], taker.descent.average(kBias)[i], 1e-6);
    }
  }
}

TEST(Descent, ValuesAndAveragesAreExchangedAndExchangedBack) {
  TrainConfig config = plain_config();
  config.ema = 0.9;
  Mover mover(config);
  mover.step(1);
  const auto copy = [](std::span<const float> values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> values = copy(mover.values());
  const std::vector<float> average = copy(mover.descent.average(kBias));
  EXPECT_NE(values, average);
  mover.descent.swap_averages();
  EXPECT_EQ(copy(mover.values()), average);
  EXPECT_EQ(copy(mover.descent.average(kBias)), values);
  mover.descent.swap_averages();
  EXPECT_EQ(copy(mover.values()), values);
  EXPECT_TRUE(Mover(plain_config()).descent.average(kBias).empty());
}

TEST(Descent, ResumesToTheBit) {
  for (const char* optimizer : {"sgd", "nesterov", "adam", "adamw"}) {
    for (const double momentum : {0.0, 0.9}) {
      if (optimizer == std::string("nesterov") && momentum == 0) continue;
      SCOPED_TRACE(optimizer + std::to_string(momentum));
      TrainConfig config = plain_config();
      config.optimizer = optimizer;
      config.momentum = momentum;
      config.weight_decay = 1e-3;
      config.l1 = 1e-4;
      config.ema = 0.99;
      config.schedule = "polynomial";
      config.warm_up_steps = 7;
      Mover whole(config);
      Mover first(config);
      for (std::uint64_t step = 0; step < 5; ++step) {
        whole.step(step);
        first.step(step);
      }
      Mover second(config, 2);
      EXPECT_FALSE(std::ranges::equal(second.values(), whole.values()));
      std::ranges::copy(first.values(), second.values().begin());
      second.descent.resume(kBias, first.descent.state(kBias));
      EXPECT_EQ(second.descent.steps_taken(kBias), 5U);
      for (std::uint64_t step = 5; step < 10; ++step) {
        whole.step(step);
        second.step(step);
      }
      EXPECT_TRUE(std::ranges::equal(second.values(), whole.values()));
      const PartDescentState expected = whole.descent.state(kBias);
      const PartDescentState state = second.descent.state(kBias);
      EXPECT_EQ(state.steps, expected.steps);
      EXPECT_EQ(state.buffers, expected.buffers);
      EXPECT_EQ(state.buffers.count("average"), 1U);
    }
  }
}

TEST(Descent, RefusesTheStateOfAnother) {
  TrainConfig config = plain_config();
  config.momentum = 0.9;
  Mover mover(config);
  mover.step(0);
  const PartDescentState before = mover.descent.state(kBias);
  const auto refused = [&](const PartDescentState& saved) {
    const std::string sentence = sentence_of([&] { mover.descent.resume(kBias, saved); });
    EXPECT_EQ(mover.descent.state(kBias).steps, before.steps);
    EXPECT_EQ(mover.descent.state(kBias).buffers, before.buffers);
    return sentence;
  };
  config.ema = 0.5;
  expect_has(refused(Mover(config).descent.state(kBias)),
             "tensor 'fc1.bias': the checkpoint has average, momentum, but the run needs momentum; "
             "resume with");
  expect_has(refused({.steps = 9, .buffers = {}}),
             "the checkpoint has nothing, but the run needs momentum");
  expect_has(refused({.steps = 9, .buffers = {{"momentum", {1, 2}}}}),
             "the checkpoint has 2 values of momentum, but the tensor has 392");
}

}  // namespace
}  // namespace tersewire::trainer
