// The training loop as a whole: it learns, repeats to the bit, overlaps, ends when told.
#include "trainer/train.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tersewire/error.h"
#include "trainer/data/stroke_digits.h"
#include "trainer/train_worker.h"

namespace tersewire::trainer {
namespace {

const DataSplits& small_data() {
  static const DataSplits data{generate_stroke_digits(1, 0, 1000),
                               generate_stroke_digits(1, 5000, 300), "small"};
  return data;
}

TrainConfig small_job() {
  TrainConfig config;
  config.model = "mlp";
  config.workers = 2;
  config.steps = 30;
  config.batch = 8;
  return config;
}

TEST(Train, LearnsWithEverythingCompressed) {
  TrainConfig config = small_job();
  config.steps = 250;
  config.push_codec = config.pull_codec = "3lc:s=1.5";
  const TrainResult result = train(config, small_data(), {});
  EXPECT_EQ(result.steps, 250U);
  EXPECT_GT(result.test_accuracy, 0.5);  // ten classes: chance is 0.1
  const Counters& counters = result.worker_counters;
  EXPECT_EQ(counters.pushed_values, 250 * 2 * result.values);
  EXPECT_EQ(counters.pulled_values, 250 * 2 * result.values);
  EXPECT_LT(8.0 * static_cast<double>(counters.pushed_bytes),
            1.6 * static_cast<double>(counters.pushed_values));
}

TEST(Train, RepeatsToTheBitAndDependsOnTheSeed) {
  TrainConfig config = small_job();
  config.servers = 2;
  const TrainResult once = train(config, small_data(), {});
  const TrainResult again = train(config, small_data(), {});
  EXPECT_EQ(once.parameters_checksum, again.parameters_checksum);
  EXPECT_EQ(once.final_loss, again.final_loss);
  EXPECT_EQ(once.worker_counters.pushed_bytes, again.worker_counters.pushed_bytes);
  config.seed = 2;
  EXPECT_NE(train(config, small_data(), {}).parameters_checksum, once.parameters_checksum);
}

TEST(Train, ServersAndThreadsDoNotChangeTheModel) {
  TrainConfig config = small_job();
  const std::string one = train(config, small_data(), {}).parameters_checksum;
  config.servers = 3;
  EXPECT_EQ(train(config, small_data(), {}).parameters_checksum, one);
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

TEST(Train, EndsWhenToldWithAllWorkersAtTheSameStep) {
  std::atomic<bool> stop{false};
  TrainConfig config = small_job();
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

TEST(StopPoint, OneOfSeveralProcessesEndsTheJobInstead) {
  std::atomic<bool> stop{false};
  StopPoint here(10, &stop, true);
  StopPoint elsewhere(10, &stop, false);
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

TEST(Train, BackupWorkersAreAllowed) {
  TrainConfig config = small_job();
  config.workers = 3;
  config.backup_workers = 1;
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
  expect_refused([](TrainConfig& c) { c.exchange = "ring"; }, "ring");
  expect_refused([](TrainConfig& c) { c.exchange = "gradient-server"; }, "parameter-server");
  expect_refused([](TrainConfig& c) { c.push_codec = "3lc:s=3"; }, "s must be");
  expect_refused([](TrainConfig& c) { c.workers = 0; }, "at least 1 worker");
  expect_refused([](TrainConfig& c) { c.servers = 7; }, "7 servers");
  expect_refused([](TrainConfig& c) { c.steps = 0; }, "at least 1 step");
  expect_refused([](TrainConfig& c) { c.batch = 501; }, "batch");
  expect_refused([](TrainConfig& c) { c.learning_rate = 0; }, "learning rate");
  expect_refused([](TrainConfig& c) { c.momentum = 1; }, "momentum");
  expect_refused([](TrainConfig& c) { c.weight_decay = -1; }, "weight decay");
  expect_refused([](TrainConfig& c) { c.policy = "kind=conv:fp32"; }, "matches none");
}

TEST(Train, ImagesOfAnotherSizeAreRefused) {
  for (const int side : {14, 27, 29, 32}) {
    DataSplits data = small_data();
    for (Dataset* images : {&data.train, &data.test}) {
      images->height = images->width = side;
      images->pixels.resize(images->size() * images->image_bytes());
    }
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

TEST(StepsForEpochs, CountsWholeSteps) {
  EXPECT_EQ(steps_for_epochs(1, 1000, 4, 16), 16U);
  EXPECT_EQ(steps_for_epochs(2.5, 60000, 10, 32), 469U);
  EXPECT_THROW(steps_for_epochs(0, 1000, 4, 16), Error);
}

}  // namespace
}  // namespace tersewire::trainer
