// Workers that follow their own gradients and average their weights, over threads as ranks.
#include <array>
#include <barrier>
#include <cmath>
#include <exception>
#include <limits>

#include "exchange_test_support.h"
#include "faulty_transports.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kNever = 1000;

std::string exchange_text(std::uint64_t every, bool asynchronous) {
  return "weight-average:every=" + std::to_string(every) +
         (asynchronous ? ",mode=asynchronous" : "");
}

Job average_job(int workers, const std::string& codec, std::uint64_t every,
                bool asynchronous = false) {
  Job job = make_job(workers, 0, codec);
  job.exchange = exchange_text(every, asynchronous);
  return job;
}

Model initial_model(const Job& job) {
  Model model;
  for (std::size_t t = 0; t < job.tensors.size(); ++t) model.push_back(gradient(job, 99, 0, t));
  return model;
}

// Of a loss that pulls every weight to zero, and noise of this worker's own.
float local_gradient(int worker, std::uint64_t step, std::size_t tensor, std::size_t i,
                     float weight) {
  return 0.25F * weight + 0.125F * gradient_value(worker, step, tensor, i);
}

void descend_by(std::span<const float> gradient, std::span<float> delta) {
  std::ranges::transform(gradient, delta.begin(), [](float value) { return -value; });
}

// The models of all workers, as the forward passes of steps 1, 2, ... saw them; the last ones are
// those that the run ended with.
using History = std::vector<std::vector<Model>>;

// What a worker does before a step, or between its pulls and its pushes, beside computing.
using Hook = std::function<void(const Communicator&, int worker, std::uint64_t step)>;

struct Record {
  History history;
  std::vector<Counters> counters;
  std::vector<std::string> errors;
};

void run_one(const Job& job, Transport& transport, std::uint64_t steps, const Hook& before_step,
             const Hook& after_pulls, Record& run) {
  const int rank = transport.rank();
  const auto worker = static_cast<std::size_t>(rank);
  Model model = initial_model(job);
  const auto communicator = make_communicator(
      job, transport, [](const Part&, auto g, auto delta) { descend_by(g, delta); });
  for (std::uint64_t i = 0; i < steps; ++i) {
    if (before_step) before_step(*communicator, rank, i + 1);
    const std::uint64_t step = communicator->begin_step();
    for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
    run.history[i][worker] = model;
    if (after_pulls) after_pulls(*communicator, rank, step);
    for (std::size_t t = model.size(); t-- > 0;) {
      std::vector<float> values(model[t].size());
      for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = local_gradient(rank, step, t, k, model[t][k]);
      }
      communicator->push(t, values);
    }
  }
  communicator->finish(spans(model));
  run.history[steps][worker] = model;
  run.counters[worker] = communicator->counters();
}

Record run_all(const Job& job, std::uint64_t steps, const Hook& before_step = {},
               const Hook& after_pulls = {}) {
  const auto workers = static_cast<std::size_t>(job.workers);
  const auto ends = make_in_process_network(job.workers);
  Record run{.history = History(steps + 1, std::vector<Model>(workers)),
             .counters = std::vector<Counters>(workers),
             .errors = std::vector<std::string>(workers)};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_one(job, *ends[rank], steps, before_step, after_pulls, run);
      } catch (const std::exception& error) {
        run.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return run;
}

// Nobody begins a step before all have taken what was pushed, nor pushes before all have pulled, so
// that it is known what has arrived where nothing waits for it.
Record run_in_lockstep(const Job& job, std::uint64_t steps) {
  std::vector<const Communicator*> workers(static_cast<std::size_t>(job.workers));
  const auto all_is_taken = [&] {
    std::uint64_t pushed = 0;
    std::uint64_t pulled = 0;
    for (const Communicator* worker : workers) {
      const Counters counters = worker->counters();
      pushed += counters.pushed_bytes;
      pulled += counters.pulled_bytes;
    }
    return pushed == pulled;
  };
  const auto wait = [&]() noexcept {
    while (!all_is_taken()) std::this_thread::sleep_for(1ms);
  };
  std::barrier all_taken(job.workers, wait);
  std::barrier<> all_pulled(job.workers);
  return run_all(
      job, steps,
      [&](const Communicator& communicator, int worker, std::uint64_t) {
        workers[static_cast<std::size_t>(worker)] = &communicator;
        all_taken.arrive_and_wait();
      },
      [&](auto&&...) { all_pulled.arrive_and_wait(); });
}

void expect_no_errors(const Record& run) {
  for (const std::string& error : run.errors) EXPECT_EQ(error, "");
}

// A worker's weights of one step after its own gradient.
void descend_locally(int worker, std::uint64_t step, Model& model) {
  for (std::size_t t = 0; t < model.size(); ++t) {
    for (std::size_t i = 0; i < model[t].size(); ++i) {
      model[t][i] += -local_gradient(worker, step, t, i, model[t][i]);
    }
  }
}

// The plain average, added up in the order of ranks.
Model average_of(const std::vector<Model>& models) {
  Model mean = models[0];
  const float weight = 1.0F / static_cast<float>(models.size());
  for (std::size_t t = 0; t < mean.size(); ++t) {
    for (std::size_t i = 0; i < mean[t].size(); ++i) {
      float sum = 0;
      for (const Model& model : models) sum += weight * model[t][i];
      mean[t][i] = sum;
    }
  }
  return mean;
}

// What the papers' algorithm does, without messages.
History simulate_synchronous(const Job& job, std::uint64_t every, std::uint64_t steps) {
  History history{std::vector<Model>(static_cast<std::size_t>(job.workers), initial_model(job))};
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<Model> models = history.back();
    for (std::size_t w = 0; w < models.size(); ++w) {
      descend_locally(static_cast<int>(w), step, models[w]);
    }
    if (step % every == 0 || step == steps) models.assign(models.size(), average_of(models));
    history.push_back(models);
  }
  return history;
}

History simulate_asynchronous(const Job& job, std::uint64_t every, std::uint64_t steps) {
  const auto workers = static_cast<std::size_t>(job.workers);
  History history{std::vector<Model>(workers, initial_model(job))};
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<Model> models = history.back();
    for (std::size_t w = 0; w < workers; ++w) {
      descend_locally(static_cast<int>(w), step, models[w]);
    }
    const std::vector<Model> sent = models;
    for (std::size_t w = 0; w < workers && workers > 1 && step % every == 0; ++w) {
      Model& receiver = models[(w + 1 + step / every % (workers - 1)) % workers];
      for (std::size_t t = 0; t < receiver.size(); ++t) {
        for (std::size_t i = 0; i < receiver[t].size(); ++i) {
          receiver[t][i] = 0.5F * receiver[t][i] + 0.5F * sent[w][t][i];
        }
      }
    }
    if (step == steps) models.assign(workers, average_of(sent));
    history.push_back(models);
  }
  return history;
}

void expect_equal_histories(const History& a, const History& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t step = 0; step < a.size(); ++step) {
    for (std::size_t w = 0; w < a[step].size(); ++w) {
      SCOPED_TRACE("step " + std::to_string(step + 1) + ", worker " + std::to_string(w));
      expect_equal_bits(a[step][w], b[step][w]);
    }
  }
}

void expect_one_model(const std::vector<Model>& models) {
  for (const Model& model : models) expect_equal_bits(models[0], model);
}

struct Size {
  int workers;
  std::uint64_t every;
};

class WeightAverageTest : public testing::TestWithParam<Size> {};

TEST_P(WeightAverageTest, SynchronousIsThePlainAlgorithmForFp32) {
  const auto [workers, every] = GetParam();
  const Job job = average_job(workers, "fp32", every);
  // The second run ends between two averages where `every` is 2 or 5.
  for (const std::uint64_t steps : {10, 7}) {
    const Record run = run_all(job, steps);
    expect_no_errors(run);
    expect_equal_histories(run.history, simulate_synchronous(job, every, steps));
    expect_one_model(run.history.back());
  }
}

TEST_P(WeightAverageTest, AsynchronousInLockstepIsThePlainAlgorithmForFp32) {
  const auto [workers, every] = GetParam();
  const Job job = average_job(workers, "fp32", every, true);
  for (const std::uint64_t steps : {10, 7}) {
    const Record run = run_in_lockstep(job, steps);
    expect_no_errors(run);
    expect_equal_histories(run.history, simulate_asynchronous(job, every, steps));
    expect_one_model(run.history.back());
  }
}

TEST_P(WeightAverageTest, WhatIsSentArrives) {
  const auto [workers, every] = GetParam();
  for (const bool asynchronous : {false, true}) {
    const Record run = run_all(average_job(workers, "oland-raj", every, asynchronous), 7);
    expect_no_errors(run);
    std::uint64_t sent = 0;
    std::uint64_t arrived = 0;
    for (const Counters& counters : run.counters) {
      sent += counters.pushed_bytes;
      arrived += counters.pulled_bytes;
      EXPECT_EQ(counters.pushed_values, counters.pulled_values);
    }
    EXPECT_EQ(sent, arrived);
    EXPECT_EQ(sent > 0, workers > 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WeightAverageTest,
                         testing::Values(Size{1, 1}, Size{1, 2}, Size{2, 1}, Size{2, 5}, Size{3, 2},
                                         Size{5, 1}, Size{5, 5}));

TEST(WeightAverage, SendsEveryKStepsAndOnceAtTheEnd) {
  // Seven steps, K = 2: three exchanges and the closing one, each with 3 others.
  const Job job = average_job(4, "fp32", 2);
  std::size_t elems = 0;
  for (const TensorInfo& tensor : job.tensors) elems += tensor.elems();
  for (const Counters& counters : run_all(job, 7).counters) {
    EXPECT_EQ(counters.pushed_values, (3 + 1) * 3 * elems);
  }
  // With one other each time, but for the closing one.
  for (const Counters& counters : run_all(average_job(4, "fp32", 2, true), 7).counters) {
    EXPECT_EQ(counters.pushed_values, (3 + 3) * elems);
  }
}

TEST(WeightAverage, ARunRepeatsToTheBitWhateverTheOrderOfArrival) {
  const auto jitter = [](const Communicator&, int worker, std::uint64_t step) {
    std::this_thread::sleep_for(
        std::chrono::microseconds((static_cast<unsigned>(worker) * 37 + step * 91) % 500));
  };
  const Job job = average_job(3, "oland-raj:bits=5,ef=on", 2);
  const Record jittered = run_all(job, 7, jitter);
  expect_no_errors(jittered);
  expect_equal_histories(run_all(job, 7).history, jittered.history);
}

class QuantizedTest : public testing::TestWithParam<const char*> {};

TEST_P(QuantizedTest, ReplicasAreIdenticalAfterEveryAverageAndTheirOwnBetween) {
  const Record run = run_all(average_job(3, GetParam(), 2), 7);
  expect_no_errors(run);
  for (const std::size_t step : {1, 3, 5, 7}) expect_one_model(run.history[step - 1]);
  for (const std::size_t step : {2, 4, 6}) {
    EXPECT_NE(run.history[step - 1][0], run.history[step - 1][1]);
  }
  expect_one_model(run.history.back());
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedTest,
                         testing::Values("fp16", "bf16", "int8", "int8:ef=on", "truncate",
                                         "inceptionn", "oland-raj", "oland-raj:ef=on",
                                         "oland-raj:bits-from=gradient"));

TEST(WeightAverage, AnAverageIsWithinHalfABinForOlandRaj) {
  constexpr int kBits = 6;
  Job job = average_job(3, "oland-raj:bits=6", 1);
  job.policy = "";
  const Record run = run_all(job, 6);
  expect_no_errors(run);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    std::vector<Model> models = run.history[step - 1];
    for (int w = 0; w < 3; ++w) descend_locally(w, step, models[static_cast<std::size_t>(w)]);
    const Model mean = average_of(models);
    double largest_error = 0;
    for (std::size_t t = 0; t < mean.size(); ++t) {
      double bound = 1e-6;
      for (const Model& model : models) {
        const auto [least, greatest] = std::ranges::minmax(model[t]);
        bound += (greatest - least) / std::ldexp(2.0, kBits) / 3;
      }
      for (std::size_t i = 0; i < mean[t].size(); ++i) {
        const double error = std::fabs(run.history[step][0][t][i] - mean[t][i]);
        ASSERT_LE(error, bound) << "step " << step << ", tensor " << t << ", value " << i;
        largest_error = std::max(largest_error, error);
      }
    }
    EXPECT_GT(largest_error, 0);
  }
}

TEST(WeightAverage, BitsFollowTheGradient) {
  const auto bytes = [](float scale) {
    const Job job = average_job(2, "oland-raj:bits-from=gradient,c=2", 1);
    const auto ends = make_in_process_network(2);
    Model model = initial_model(job);
    const auto communicator = make_communicator(
        job, *ends[0], [](const Part&, auto, auto delta) { std::ranges::fill(delta, 0.0F); });
    communicator->begin_step();
    for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
    for (std::size_t t = model.size(); t-- > 0;) {
      std::vector<float> values = gradient(job, 0, 1, t);
      for (float& value : values) value *= scale;
      communicator->push(t, values);
    }
    return communicator->counters().pushed_bytes;
  };
  EXPECT_LT(bytes(1), bytes(100));
  EXPECT_LT(bytes(100), bytes(3000));
}

TEST(WeightAverage, AGradientThatOverflowedIsTheUpdatesToSkip) {
  const Job job = average_job(1, "oland-raj:bits-from=gradient", 1);
  const auto ends = make_in_process_network(1);
  Model model = initial_model(job);
  const auto communicator = make_communicator(job, *ends[0], [](const Part&, auto g, auto delta) {
    std::ranges::transform(g, delta.begin(), [](float v) { return std::isnan(v) ? 0 : -v; });
  });
  for (int step = 1; step <= 3; ++step) {
    communicator->begin_step();
    for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
    for (std::size_t t = model.size(); t-- > 0;) {
      std::vector<float> values(model[t].size(), 0.5F);
      if (step == 2) values[3] = std::numeric_limits<float>::quiet_NaN();
      communicator->push(t, values);
    }
  }
  communicator->finish(spans(model));
  EXPECT_EQ(communicator->counters().not_finite_tensors, 0U);
  EXPECT_NEAR(model[2][0], initial_model(job)[2][0] - 1.5F, 0.1);
  EXPECT_NEAR(model[2][3], initial_model(job)[2][3] - 1.0F, 0.1);
}

// Of the models that a step began with: the largest distance of a weight from its average.
float spread(const std::vector<Model>& models) {
  const Model mean = average_of(models);
  float most = 0;
  for (const Model& model : models) {
    for (std::size_t t = 0; t < mean.size(); ++t) {
      for (std::size_t i = 0; i < mean[t].size(); ++i) {
        most = std::max(most, std::fabs(model[t][i] - mean[t][i]));
      }
    }
  }
  return most;
}

TEST(WeightAverageAsynchronous, HoldsModelsTogether) {
  const std::uint64_t steps = 20;
  const auto spread_of = [&](std::uint64_t every) {
    const Record run = run_in_lockstep(average_job(5, "oland-raj", every, true), steps);
    expect_no_errors(run);
    return spread(run.history[steps - 1]);
  };
  const float alone = spread_of(kNever);
  EXPECT_GT(alone, 0.05F);
  EXPECT_LT(spread_of(1), 0.75F * alone);
}

TEST(WeightAverageAsynchronous, WorkersOfDifferentSpeedsEndWithOneModel) {
  // The first is through before the last has begun.
  const auto uneven = [](const Communicator&, int worker, std::uint64_t step) {
    std::this_thread::sleep_for(std::chrono::microseconds(worker * 2000 + (step * 91) % 500));
  };
  for (const std::uint64_t every : {1, 2, 3}) {
    const Record run = run_all(average_job(5, "oland-raj", every, true), 8, uneven);
    expect_no_errors(run);
    expect_one_model(run.history.back());
    EXPECT_LT(spread(run.history.back()), 1e-6F);
  }
}

TEST(WeightAverageAsynchronous, OneThatFallsSilentShowsAtTheEnd) {
  Job job = average_job(2, "fp32", 1, true);
  job.progress_limit = 100ms;
  const auto ends = make_in_process_network(2);
  Record run{.history = History(5, std::vector<Model>(2)), .counters = {{}, {}}, .errors = {}};
  try {
    run_one(job, *ends[0], 4, {}, {}, run);
    FAIL() << "it ended without the other";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
  }
  EXPECT_THROW(ends[1]->receive(0ms), Error);
}

TEST(WeightAverage, AWorkerThatHasLeftIsNotWaitedFor) {
  const Job job = average_job(3, "fp32", 1, false);
  auto ends = make_in_process_network(3);
  ends[2].reset();  // without a word
  Record run{.history = History(5, std::vector<Model>(3)),
             .counters = {{}, {}, {}},
             .errors = {"", "", ""}};
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      try {
        run_one(job, *ends[rank], 4, {}, {}, run);
      } catch (const Error& error) {
        run.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t rank : {0, 1}) {
    EXPECT_NE(run.errors[rank].find("rank 2 has left the job"), std::string::npos)
        << run.errors[rank];
  }
}

class BothModesTest : public testing::TestWithParam<bool> {};

TEST_P(BothModesTest, AWorkerThatLeavesEndsTheJobEverywhere) {
  const auto leave = [](const Communicator&, int worker, std::uint64_t step) {
    if (worker == 1 && step == 4) throw std::runtime_error("out of memory");
  };
  const Record run = run_all(average_job(3, "fp32", 2, GetParam()), 9, leave);
  for (const std::string& error : run.errors) EXPECT_NE(error, "");
}

TEST_P(BothModesTest, WorkersThatEndAfterDifferentStepsAreNoticed) {
  const Job job = average_job(2, "fp32", 4, GetParam());
  const auto ends = make_in_process_network(2);
  Record run{
      .history = History(8, std::vector<Model>(2)), .counters = {{}, {}}, .errors = {"", ""}};
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      try {
        run_one(job, *ends[rank], 5 + rank, {}, {}, run);
      } catch (const Error& error) {
        run.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : run.errors) {
    EXPECT_NE(error.find("in place of step"), std::string::npos) << error;
  }
}

TEST_P(BothModesTest, AStepThatIsBegunAndNotComputedChangesNothing) {
  const Job job = average_job(2, "fp32", 2, GetParam());
  const auto ends = make_in_process_network(2);
  std::array<Model, 2> models{zeros(job), zeros(job)};
  // Worker 0 pulls for the second step, worker 1 does not.
  const auto work = [&](std::size_t rank) {
    Model& model = models[rank];
    const auto communicator = make_communicator(
        job, *ends[rank], [](const Part&, auto g, auto delta) { descend_by(g, delta); });
    communicator->begin_step();
    for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
    for (std::size_t t = 0; t < model.size(); ++t) {
      communicator->push(t, std::vector<float>(model[t].size(), rank == 0 ? 1.0F : 3.0F));
    }
    communicator->begin_step();
    for (std::size_t t = 0; t < model.size() && rank == 0; ++t) communicator->pull(t, model[t]);
    communicator->finish(spans(model));
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  for (const Model& model : models) {
    for (const auto& values : model) EXPECT_EQ(values, std::vector<float>(values.size(), -2.0F));
  }
}

// 400 steps of a tensor that begins as -1, -0.98, ... 1, of which all but the extremes move by
// -0.00125, a hundredth of a bin.
std::vector<float> after_small_steps(const std::string& codec, bool asynchronous) {
  Job job = average_job(2, codec, 1, asynchronous);
  job.tensors = {{"weight", {101}, TensorKind::kDense}};
  job.policy = "";
  const auto ends = make_in_process_network(2);
  std::vector<float> start(101);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = 0.02F * static_cast<float>(i) - 1;
  std::array<std::vector<float>, 2> models{start, start};
  std::barrier<> together(2);
  const auto work = [&](std::size_t rank) {
    std::vector<float> values(101, 0.00125F);
    values.front() = values.back() = 0;
    const auto communicator = make_communicator(
        job, *ends[rank], [](const Part&, auto g, auto delta) { descend_by(g, delta); });
    for (int step = 0; step < 400; ++step) {
      communicator->begin_step();
      communicator->pull(0, models[rank]);
      together.arrive_and_wait();
      communicator->push(0, values);
      together.arrive_and_wait();
      wait_until_taken(*communicator, *ends[rank], ends[1 - rank]->bytes_sent());
    }
    communicator->finish(std::array{std::span<float>(models[rank])});
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  EXPECT_EQ(models[0], models[1]);
  return models[0];
}

TEST_P(BothModesTest, AResidualKeepsWhatABinSwallows) {
  // A bin is an eighth wide.
  const std::vector<float> kept = after_small_steps("oland-raj:bits=4,ef=on", GetParam());
  EXPECT_NEAR(kept[50], -0.5, 0.125);
  EXPECT_NEAR(kept[100], 1, 0.125);
  // Without one small steps are rounded away, and the greatest weight falls to the middle of the
  // last bin again and again.
  const std::vector<float> lost = after_small_steps("oland-raj:bits=4", GetParam());
  EXPECT_GT(lost[50], -0.5 + 0.125);
  EXPECT_LT(lost[100], 1 - 0.125);
}

INSTANTIATE_TEST_SUITE_P(All, BothModesTest, testing::Bool());

Bytes message(std::uint32_t sender, std::uint64_t step, std::uint32_t tensor, CodecId codec,
              ByteView payload, MessageKind kind) {
  MessageWriter writer({.kind = kind, .sender = sender, .step = step});
  writer.add({.tensor = tensor,
              .codec = codec,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  return writer.take();
}

// Worker 0, up to the pull of step 3, while worker 1 has sent `bytes`.
void expect_refused(const Job& job, const Bytes& bytes) {
  const auto ends = make_in_process_network(job.workers);
  Model model = initial_model(job);
  Model pulled = model;
  ends[1]->send(0, std::make_shared<const Bytes>(bytes));
  try {
    const auto communicator = make_communicator(
        job, *ends[0], [](const Part&, auto g, auto delta) { descend_by(g, delta); });
    wait_until_taken(*communicator, *ends[1], bytes.size());
    for (int step = 1; step <= 3; ++step) {
      communicator->begin_step();
      for (const std::size_t t : {1, 0, 2}) communicator->pull(t, model[t]);
      pulled = model;
      for (const std::size_t t : {2, 0, 1}) communicator->push(t, gradient(job, 0, 1, t));
    }
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    const std::string sentence = error.what();
    EXPECT_TRUE(sentence.find("rank 1") != std::string::npos ||
                sentence.find("worker 1") != std::string::npos)
        << sentence;
  }
  expect_equal_bits(model, pulled);
  EXPECT_THROW(ends[1]->receive(0ms), Error);
}

TEST(WeightAverage, RubbishFromAPeerEndsTheJobWithItsName) {
  const Bytes good(11 * sizeof(float));
  const ByteView cut = ByteView(good).subspan(4);
  constexpr MessageKind kAll = MessageKind::kPush;
  constexpr MessageKind kPartner = MessageKind::kPull;
  const Job job = average_job(2, "fp32", 2);
  expect_refused(job, Bytes(40));                                         // no message
  expect_refused(job, message(0, 2, 1, CodecId::kFp32, good, kAll));      // another's name
  expect_refused(job, message(1, 1, 1, CodecId::kFp32, good, kAll));      // another step
  expect_refused(job, message(1, 2, 9, CodecId::kFp32, good, kAll));      // no such tensor
  expect_refused(job, message(1, 2, 1, CodecId::kFp32, cut, kAll));       // too short
  expect_refused(job, message(1, 2, 1, CodecId::kOlandRaj, good, kAll));  // no such payload
  expect_refused(job, message(1, 2, 1, CodecId::kFp32, good, kPartner));  // of another mode
  expect_refused(job, message(1, 2, 1, CodecId::kFp32, good, MessageKind::kState));
  // Worker 1 of three sends to worker 2 after step 4, and to worker 0 after step 2.
  const Job pairs = average_job(3, "fp32", 2, true);
  expect_refused(pairs, message(1, 4, 1, CodecId::kFp32, good, kPartner));  // for another
  expect_refused(pairs, message(1, 3, 1, CodecId::kFp32, good, kPartner));  // between exchanges
  expect_refused(pairs, message(1, 2, 9, CodecId::kFp32, good, kPartner));  // no such tensor
  expect_refused(pairs, message(1, 2, 1, CodecId::kFp32, cut, kPartner));   // too short
  expect_refused(pairs, message(1, 2, 1, CodecId::kOlandRaj, good, kPartner));
}

TEST(WeightAverage, MoreThanAPeerCanHaveToSendEndsTheJob) {
  const Job job = average_job(2, "fp32", 2);
  const auto ends = make_in_process_network(2);
  const Bytes good(11 * sizeof(float));
  for (const std::uint64_t step : {2, 4, 6}) {
    ends[1]->send(0, std::make_shared<const Bytes>(
                         message(1, step, 1, CodecId::kFp32, good, MessageKind::kPush)));
  }
  const auto communicator =
      make_communicator(job, *ends[0], [](const Part&, auto g, auto d) { descend_by(g, d); });
  wait_until_taken(*communicator, *ends[1], ends[1]->bytes_sent());
  EXPECT_THROW(communicator->begin_step(), Error);
}

TEST(WeightAverageAsynchronous, KeepsTheLatestOfEachPeer) {
  const Job job = average_job(2, "fp32", 1, true);
  const auto ends = make_in_process_network(2);
  for (const std::uint64_t step : {1, 2, 3}) {
    const std::vector<float> weights(11, static_cast<float>(step));
    ends[1]->send(
        0, std::make_shared<const Bytes>(message(
               1, step, 1, CodecId::kFp32, std::as_bytes(std::span(weights)), MessageKind::kPull)));
  }
  Model model = zeros(job);
  const auto communicator =
      make_communicator(job, *ends[0], [](const Part&, auto g, auto d) { descend_by(g, d); });
  wait_until_taken(*communicator, *ends[1], ends[1]->bytes_sent());
  communicator->begin_step();
  for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, model[i]);
  for (std::size_t i = 3; i-- > 0;) {
    communicator->push(i, std::vector<float>(model[i].size(), -5.0F));
  }
  communicator->begin_step();
  communicator->pull(1, model[1]);
  EXPECT_EQ(model[1], std::vector<float>(11, (5.0F + 3.0F) / 2));
}

// To which so many bytes wait to be sent, as it says.
class BusyTransport final : public OwningTransport {
 public:
  explicit BusyTransport(std::unique_ptr<Transport> inner) : OwningTransport(std::move(inner)) {}
  [[nodiscard]] Peer peer(int rank) const override {
    Peer peer = OwningTransport::peer(rank);
    peer.waiting = waiting;
    return peer;
  }

  std::size_t waiting = 0;
};

TEST(WeightAverageAsynchronous, SendsNoMoreThanTwoModelsToOneThatTakesNone) {
  const Job job = average_job(2, "fp32", 1, true);
  auto ends = make_in_process_network(2);
  BusyTransport busy(std::move(ends[0]));
  const auto communicator =
      make_communicator(job, busy, [](const Part&, auto g, auto d) { descend_by(g, d); });
  const auto bytes_of_a_step = [&] {
    const std::uint64_t before = busy.bytes_sent();
    Model model = zeros(job);
    communicator->begin_step();
    for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
    for (std::size_t t = model.size(); t-- > 0;) communicator->push(t, model[t]);
    return busy.bytes_sent() - before;
  };
  const std::uint64_t model = bytes_of_a_step();
  EXPECT_GT(model, 0U);
  busy.waiting = 2 * model;
  EXPECT_GT(bytes_of_a_step(), 0U);  // a longest model is a little longer
  busy.waiting = 3 * model;
  const std::uint64_t values = communicator->counters().pushed_values;
  EXPECT_EQ(bytes_of_a_step(), 0U);
  EXPECT_EQ(communicator->counters().pushed_values, values);
  busy.waiting = 0;
  EXPECT_EQ(bytes_of_a_step(), model);
}

TEST(WeightAverage, OneThatNeverTakesWhatItIsSentEndsTheJob) {
  const Job job = average_job(2, "fp32", 1);
  auto ends = make_in_process_network(2);
  BusyTransport busy(std::move(ends[0]));
  const auto communicator =
      make_communicator(job, busy, [](const Part&, auto g, auto d) { descend_by(g, d); });
  Model model = zeros(job);
  communicator->begin_step();
  for (std::size_t t = 0; t < model.size(); ++t) communicator->pull(t, model[t]);
  busy.waiting = (std::size_t{1} << 30) + 1;
  try {
    for (std::size_t t = model.size(); t-- > 0;) communicator->push(t, model[t]);
    ADD_FAILURE() << "sent on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("rank 1 is not reading"), std::string::npos)
        << error.what();
  }
}

TEST(WeightAverage, WantsAPullBeforeTheFirstPushAndAWholeGradient) {
  const Job job = average_job(1, "fp32", 1);
  const auto push = [&](bool pull, std::size_t elems) {
    const auto ends = make_in_process_network(1);
    Model model = initial_model(job);
    const auto communicator =
        make_communicator(job, *ends[0], [](const Part&, auto g, auto d) { descend_by(g, d); });
    communicator->begin_step();
    if (pull) communicator->pull(1, model[1]);
    communicator->push(1, std::vector<float>(elems));
  };
  push(true, 11);
  EXPECT_THROW(push(false, 11), Error);
  EXPECT_THROW(push(true, 10), Error);
}

void expect_job_refused(const Job& job, const std::string& part) {
  const auto ends = make_in_process_network(job.workers);
  try {
    make_communicator(job, *ends[0], [](auto, auto, auto) {});
    FAIL() << "accepted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(WeightAverage, JobsThatMakeNoSenseAreRefused) {
  const auto refuses = [](const std::string& exchange, const std::string& part) {
    Job job = average_job(2, "fp32", 1);
    job.exchange = exchange;
    expect_job_refused(job, part);
  };
  refuses("weight-average:every=0", "every");
  refuses("weight-average:every=1.5", "every");
  refuses("weight-average:mode=x", "mode");
  refuses("weight-average:epochs=1", "every and mode");
  Job job = average_job(2, "fp32", 1);
  job.backup_workers = 1;
  expect_job_refused(job, "backup");
}

TEST(WeightAverage, CodecsThatDropWeightsAreRefused) {
  const std::vector<std::string> fit{"fp32",     "fp16",       "bf16",     "int8",
                                     "truncate", "inceptionn", "oland-raj"};
  int refused = 0;
  for (const CodecDescription& codec : codec_descriptions()) {
    for (const bool asynchronous : {false, true}) {
      const Job job = average_job(2, codec.name, 1, asynchronous);
      if (std::ranges::find(fit, codec.name) == fit.end()) {
        expect_job_refused(job, "does not fit weights");
        ++refused;
      } else {
        const auto ends = make_in_process_network(2);
        EXPECT_NO_THROW(make_communicator(job, *ends[0], [](auto, auto, auto) {})) << codec.name;
      }
    }
  }
  EXPECT_GE(refused, 20);
}

// Which the library would otherwise find out at the first push, or the first delta.
TEST(WeightAverage, BitsFromAGradientFitWeightsAlone) {
  Job job = average_job(2, "oland-raj:bits-from=gradient", 1);
  job.pull_codec = job.push_codec;
  EXPECT_EQ(server_nodes(job), 0);
  for (const char* exchange : {"parameter-server", "all-gather"}) {
    job.exchange = exchange;
    job.servers.reset();
    job.pull_codec = "fp32";
    expect_job_refused(job, "which only weight-average provides");
  }
  job.exchange = "parameter-server";
  std::swap(job.push_codec, job.pull_codec);
  expect_job_refused(job, "which only weight-average provides");
}

}  // namespace
}  // namespace tersewire
