// Communicator::mean(): the mean gradient in the same step, of every exchange that has it, against
// what push and pull of the same job come to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "exchange_suite.h"
#include "expect_error.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kSteps = 4;

std::vector<TestedExchange> with_means() {
  std::vector<TestedExchange> found{
      {"gradient-server", Job::kColocated, Sends::kGradients, two_errors}};
  for (const TestedExchange& exchange : kTestedExchanges) {
    Job job;
    job.exchange = exchange.text;
    job.workers = 4;
    if (!exchange_traits(job.exchange).workers_own_model || exchange.sends == Sends::kWeights)
      continue;
    if (exchange.servers && *exchange.servers > 0) continue;  // a test runs workers alone
    found.push_back(exchange);
  }
  return found;
}

std::string codec_for(const TestedExchange& exchange) {
  if (exchange.sends == Sends::kSums) return "inceptionn:bound=2^-6,ef=on";
  return exchange.sends == Sends::kTernary ? "terngrad" : "3lc:s=1.75";
}

const Update kNone = [](const Part&, std::span<const float>, std::span<float>) {
  throw std::logic_error("who takes means needs no update");
};

// What a worker found: the sum of its means, by tensor, and its state after the last step.
struct Found {
  Model sum;
  NodeState state;
  double encoded_bytes = 0;
};

// One thread pushes, another takes the means of the tensors that have been pushed.
void take_means(const Job& job, Transport& end, Found& found, const NodeState* resume = nullptr,
                std::uint64_t steps = kSteps) {
  const auto worker = make_communicator(job, end, kNone, nullptr, resume);
  found.sum = zeros(job);
  const std::uint64_t first = resume == nullptr ? 1 : resume->step + 1;
  for (std::uint64_t step = first; step < first + steps; ++step) {
    ASSERT_EQ(worker->begin_step(), step);
    for (std::size_t i = job.tensors.size(); i-- > 1;) {
      worker->push(i, gradient(job, end.rank(), step, i));
    }
    std::vector<std::thread> takers;
    for (std::size_t i = job.tensors.size(); i-- > 1;) {
      takers.emplace_back([&, i] {
        Floats mean(job.tensors[i].elems(), 7.0F);
        worker->mean(i, mean);
        for (std::size_t j = 0; j < mean.size(); ++j) found.sum[i][j] -= mean[j];
      });
    }
    worker->push(0, gradient(job, end.rank(), step, 0));
    for (std::thread& taker : takers) taker.join();
    Floats mean(job.tensors[0].elems());
    worker->mean(0, mean);
    for (std::size_t j = 0; j < mean.size(); ++j) found.sum[0][j] -= mean[j];
  }
  found.state = worker->state();
  for (const double bytes : worker->encoded_bytes()) found.encoded_bytes += bytes;
}

// Over threads as ranks; nobody calls finish().
std::vector<Found> run_means(const Job& job, const std::vector<Found>* before = nullptr,
                             std::uint64_t steps = kSteps) {
  const int nodes = job.workers + server_nodes(job);
  const auto ends = make_in_process_network(nodes);
  std::vector<Found> found(static_cast<std::size_t>(job.workers));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const NodeState* resume = before == nullptr ? nullptr : &(*before)[rank].state;
      EXPECT_NO_THROW(take_means(job, *ends[rank], found[rank], resume, steps));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

class Mean : public testing::TestWithParam<TestedExchange> {
 protected:
  static Job job() {
    const TestedExchange& exchange = GetParam();
    Job job = suite_job(exchange, codec_for(exchange), 4);
    job.checksum_steps = 0;
    return job;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Mean, testing::ValuesIn(with_means()), exchange_name);

TEST_P(Mean, IsWhatPushAndPullComeTo) {
  const Job job = Mean::job();
  const Outcome pulled = run_job(job, {.steps = kSteps, .before_step = {}, .gradient = {}});
  expect_no_errors(pulled);
  const auto found = run_means(job);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    expect_equal_bits(found[rank].sum, pulled.replicas[0]);
  }
}

std::set<std::string> threads_now() {
  std::set<std::string> threads;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(thread.path().filename());
  }
  return threads;
}

// It has nobody to wait for: its server, too, works in the application's calls.
TEST_P(Mean, OfAWorkerAloneNeedsNoThread) {
  Job job = Mean::job();
  if (job.exchange.find("group") != std::string::npos) GTEST_SKIP() << "a group is several";
  job.workers = 1;
  const Outcome pulled = run_job(job, {.steps = kSteps, .before_step = {}, .gradient = {}});
  expect_no_errors(pulled);
  const auto ends = make_in_process_network(1);
  const std::set<std::string> threads = threads_now();
  const auto worker = make_communicator(job, *ends[0], kNone);
  Model sum = zeros(job);
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    worker->begin_step();
    for (std::size_t i = job.tensors.size(); i-- > 0;) worker->push(i, gradient(job, 0, step, i));
    // Those of the job before may still be ending.
    EXPECT_TRUE(std::ranges::includes(threads, threads_now()));
    for (std::size_t i = 0; i < job.tensors.size(); ++i) {
      Floats mean(job.tensors[i].elems());
      worker->mean(i, mean);
      for (std::size_t j = 0; j < mean.size(); ++j) sum[i][j] -= mean[j];
    }
  }
  expect_equal_bits(sum, pulled.replicas[0]);
}

// What the lone node's server fails with is what the application hears.
TEST(Means, OfAWorkerAloneFailAsItsServerDoes) {
  Job job;
  job.tensors = {{.name = "w", .shape = {8}, .kind = TensorKind::kOther}};
  job.exchange = "gradient-server";
  job.servers = Job::kColocated;
  job.workers = 1;
  job.checksum_steps = 0;
  job.push_codec = "fp32";
  job.pull_codec = "fp32:non-finite=reject";
  job.policy = "";
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(job, *ends[0], kNone);
  worker->begin_step();
  const std::vector<float> values(8, std::numeric_limits<float>::infinity());
  const auto sentence = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string said = sentence([&] { worker->push(0, values); });
  EXPECT_NE(said.find("the server on rank 0: mean of tensor 'w': the tensor holds a NaN"),
            std::string::npos)
      << said;
  EXPECT_NE(sentence([&] { worker->begin_step(); }), "");
}

// Ranks of servers beside workers are those of their nodes, and nothing else in a sentence is.
TEST(Means, LeaveNamesOfTensorsAlone) {
  Job job;
  job.workers = 2;
  job.servers = Job::kColocated;
  job.tensors = {{.name = "lora rank 3", .shape = {8}}};
  const auto ends = make_in_process_network(2);
  const auto worker = make_communicator(job, *ends[0], kNone);
  worker->begin_step();
  const std::vector<float> wrong(7);
  try {
    worker->push(0, wrong);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'lora rank 3'"), std::string::npos) << error.what();
  }
}

TEST_P(Mean, GoesOnAfterAState) {
  const Job job = Mean::job();
  const auto whole = run_means(job, nullptr, 2 * kSteps);
  const auto before = run_means(job);
  const auto after = run_means(job, &before);
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    EXPECT_EQ(before[rank].state.step, kSteps);
    EXPECT_EQ(after[rank].state.step, 2 * kSteps);
    EXPECT_EQ(after[rank].state.pushed, whole[rank].state.pushed);
    EXPECT_EQ(after[rank].state.pulled, whole[rank].state.pulled);
  }
}

// What was applied and what is kept are the gradients.
void expect_nothing_is_lost(const Job& job, const std::vector<Found>& found) {
  const auto parts = job_parts(job);
  double kept_in_all = 0;
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    std::vector<double> whole(job.tensors[tensor].elems(), 0.0);
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = -found[0].sum[tensor][i];
    for (const Found& node : found) {
      for (const Part& part : parts) {
        if (part.tensor != tensor) continue;
        const auto& pushed = node.state.pushed[part.number];
        const auto& pulled = node.state.pulled[part.number];
        for (std::size_t i = 0; i < part.elems; ++i) {
          const double of_mean = (pushed.empty() ? 0.0 : pushed[i] / 4.0) +
                                 (pulled.empty() ? 0.0 : static_cast<double>(pulled[i]));
          whole[part.begin + i] += of_mean;
          kept_in_all += std::abs(of_mean);
        }
      }
    }
    for (int worker = 0; worker < job.workers; ++worker) {
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        const auto values = gradient(job, worker, step, tensor);
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] -= values[i] / 4.0;
      }
    }
    for (const double off : whole) EXPECT_NEAR(off, 0.0, 1e-5);
  }
  EXPECT_GT(kept_in_all, 0.1);
}

TEST_P(Mean, LosesNothing) {
  if (GetParam().sends == Sends::kTernary) GTEST_SKIP() << "terngrad keeps nothing";
  expect_nothing_is_lost(job(), run_means(job()));
}

// A worker that takes kSteps steps, before each of which it takes one that is undone, or none.
void take_means_and_undo(const Job& job, Transport& end, bool undoes, Found& found) {
  const auto worker = make_communicator(job, end, kNone);
  found.sum = zeros(job);
  const auto take_step = [&](std::uint64_t gradients, bool undone) {
    worker->begin_step();
    for (std::size_t i = job.tensors.size(); i-- > 0;) {
      worker->push(i, gradient(job, end.rank(), gradients, i));
    }
    for (std::size_t i = 0; i < job.tensors.size(); ++i) {
      Floats mean(job.tensors[i].elems());
      worker->mean(i, mean);
      for (std::size_t j = 0; j < mean.size() && !undone; ++j) found.sum[i][j] -= mean[j];
    }
    for (std::size_t i = 0; i < job.tensors.size() && undone; ++i) worker->undo(i);
  };
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    if (undoes) take_step(100 + step, true);
    take_step(step, false);
  }
  found.state = worker->state();
}

TEST_P(Mean, UndoneStepsLeaveNoTrace) {
  Job job = Mean::job();
  job.undoable = true;
  if (GetParam().sends == Sends::kTernary) GTEST_SKIP() << "terngrad's draws go by steps";
  if (job.servers.value_or(0) > 0) {
    expect_error(ErrorCode::kInvalidArgument, "cannot be undone in this job",
                 [&] { server_nodes(job); });
    return;
  }
  std::vector<std::vector<Found>> found;
  for (const bool undoes : {false, true}) {
    const auto ends = make_in_process_network(job.workers);
    found.emplace_back(ends.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_NO_THROW(take_means_and_undo(job, *ends[rank], undoes, found.back()[rank]));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (std::size_t rank = 0; rank < found[0].size(); ++rank) {
    expect_equal_bits(found[0][rank].sum, found[1][rank].sum);
    expect_equal_bits(found[0][rank].state.pushed, found[1][rank].state.pushed);
    expect_equal_bits(found[0][rank].state.pulled, found[1][rank].state.pulled);
  }
}

TEST(Means, AreUndoneInTheirStepAlone) {
  Job job = suite_job({"all-gather", {}, Sends::kGradients, one_error}, "3lc", 1);
  job.checksum_steps = 0;
  for (const bool undoable : {false, true}) {
    job.undoable = undoable;
    const auto ends = make_in_process_network(1);
    const auto worker = make_communicator(job, *ends[0], kNone);
    worker->begin_step();
    for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, 0, 1, i));
    if (!undoable) {
      Floats mean(job.tensors[2].elems());
      worker->mean(2, mean);
    }
    expect_error(ErrorCode::kFailedPrecondition, "can be undone in step 1",
                 [&] { worker->undo(2); });
  }
}

// All hear of it, in that step or the next.
TEST(Means, AWorkerThatSkipsAStepIsNamed) {
  for (const int skipping : {0, 2}) {
    Job job =
        suite_job({"gradient-server", Job::kColocated, Sends::kGradients, two_errors}, "3lc", 3);
    job.checksum_steps = 0;
    const auto ends = make_in_process_network(job.workers);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < job.workers; ++rank) {
      threads.emplace_back([&, rank] {
        const auto worker = make_communicator(job, *ends[static_cast<std::size_t>(rank)], kNone);
        const auto take_step = [&](std::uint64_t skipped) {
          const std::uint64_t step = worker->begin_step();
          worker->say_skipped(skipped);
          Model model = zeros(job);
          for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, rank, step, i));
          for (std::size_t i = 3; i-- > 0;) worker->mean(i, model[i]);
        };
        std::string said;
        try {
          take_step(2);
          for (int step = 0; step < 3; ++step) take_step(rank == skipping ? 3 : 2);
        } catch (const Error& error) {
          said = error.what();
        }
        const std::string expected =
            "worker " + std::to_string(skipping) + " has skipped more steps than worker ";
        EXPECT_NE(said.find(expected), std::string::npos) << said;
        EXPECT_NE(said.find("before step 2 (3 and 2)"), std::string::npos) << said;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Mean, OfWarmUpStepsIsExactAndMovesNoResidual) {
  Job job = Mean::job();
  job.warm_up_steps = kSteps;
  Job plain = job;
  plain.warm_up_steps = 0;
  plain.push_codec = plain.pull_codec = "fp32";
  if (GetParam().sends == Sends::kTernary) plain.exchange = "gradient-server";
  const auto found = run_means(job);
  expect_equal_bits(found[0].sum, run_means(plain)[0].sum);
  if (GetParam().sends == Sends::kGradients) {
    EXPECT_EQ(found[0].encoded_bytes, kSteps * 4 * (13 * 5 + 7 + 31));
  }
  for (const Found& node : found) {
    for (const auto& residual : node.state.pushed) {
      for (const float value : residual) EXPECT_EQ(value, 0.0F);
    }
  }
  job.warm_up_steps = kSteps - 1;
  EXPECT_LT(run_means(job)[0].encoded_bytes, found[0].encoded_bytes);
}

TEST(Means, AreOfTensorsThatWerePushedInTheStep) {
  Job job = suite_job({"all-gather", {}, Sends::kGradients, one_error}, "fp32", 1);
  job.checksum_steps = 0;
  job.bucket_bytes = 4;  // each tensor for itself
  const auto refused = [&](const auto& use) {
    const auto ends = make_in_process_network(1);
    const auto worker = make_communicator(job, *ends[0], kNone);
    Floats mean(job.tensors[1].elems());
    expect_error(ErrorCode::kFailedPrecondition, "has no mean to take",
                 [&] { use(*worker, mean); });
  };
  refused([](Communicator& worker, Floats& mean) { worker.mean(1, mean); });
  refused([](Communicator& worker, Floats& mean) {
    worker.begin_step();
    worker.mean(1, mean);
  });
  refused([&](Communicator& worker, Floats& mean) {
    worker.begin_step();
    worker.push(1, gradient(job, 0, 1, 1));
    worker.mean(1, mean);
    EXPECT_TRUE(std::ranges::equal(mean, gradient(job, 0, 1, 1)));
    worker.mean(1, mean);
  });
}

TEST(Means, AreNotOfLocalSteps) {
  Job job = suite_job({"all-gather", {}, Sends::kGradients, one_error}, "fp32", 1);
  job.checksum_steps = 0;
  job.local_steps = 2;
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(job, *ends[0], kNone);
  Floats mean(job.tensors[1].elems());
  worker->begin_step();
  expect_error(ErrorCode::kFailedPrecondition, "single steps have no mean gradient",
               [&] { worker->mean(1, mean); });
}

TEST(Means, AreForJobsThatHaveThem) {
  const Job job = suite_job({"weight-average", {}, Sends::kGradients, one_error}, "fp32", 1);
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(
      job, *ends[0], [](const Part&, std::span<const float> mean, std::span<float> delta) {
        std::ranges::copy(mean, delta.begin());
      });
  Model model = zeros(job);
  worker->begin_step();
  for (std::size_t i = 0; i < 3; ++i) worker->pull(i, model[i]);
  for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, 0, 1, i));
  expect_error(ErrorCode::kFailedPrecondition, "has no mean gradient of a step",
               [&] { worker->mean(0, model[0]); });
}

TEST(Means, AreNotForWorkersThatOthersOvertake) {
  Job job =
      suite_job({"gradient-server", Job::kColocated, Sends::kGradients, two_errors}, "3lc", 2);
  job.backup_workers = 1;
  job.checksum_steps = 0;
  const auto ends = make_in_process_network(2);
  const auto worker = make_communicator(job, *ends[0], kNone);
  worker->begin_step();
  Floats mean(job.tensors[0].elems());
  expect_error(ErrorCode::kFailedPrecondition, "that others may overtake",
               [&] { worker->mean(0, mean); });
}

// Where servers own the model: the same bits, a step earlier.
TEST(Means, AreWhatWorkersWouldPullWhereServersOwnTheModel) {
  Job job =
      suite_job({"parameter-server", Job::kColocated, Sends::kGradients, two_errors}, "3lc", 1);
  job.checksum_steps = 0;
  std::vector<Model> models;
  for (const bool pulls : {true, false}) {
    const auto ends = make_in_process_network(1);
    const auto worker = make_communicator(
        job, *ends[0], [](const Part&, std::span<const float> mean, std::span<float> delta) {
          std::ranges::transform(mean, delta.begin(), [](float value) { return -0.5F * value; });
        });
    Model model = zeros(job);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      worker->begin_step();
      for (std::size_t i = 0; i < model.size() && pulls; ++i) worker->pull(i, model[i]);
      if (step == 4 && pulls) break;
      for (std::size_t i = model.size(); i-- > 0;) worker->push(i, gradient(job, 0, step, i));
      for (std::size_t i = 0; i < model.size() && !pulls; ++i) {
        Floats change(model[i].size());
        worker->mean(i, change);
        std::ranges::transform(model[i], change, model[i].begin(), std::plus<>());
      }
      if (step == 3 && !pulls) break;
    }
    models.push_back(std::move(model));
  }
  EXPECT_EQ(models[0], models[1]);
}

TEST(Means, WorkersThatLeaveWithThemEndTheirServers) {
  for (const char* exchange : {"gradient-server", "parameter-server", "aggregator-tree"}) {
    SCOPED_TRACE(exchange);
    Job job = job_for(exchange, 2, "3lc");
    job.checksum_steps = 0;
    const auto ends = make_in_process_network(2 + server_nodes(job));
    std::vector<std::thread> threads;
    for (const auto& end : ends) {
      threads.emplace_back([&] {
        Model model = zeros(job);
        const Update update = needs_update(job, end->rank()) ? descend(model) : Update();
        if (end->rank() >= 2) {
          EXPECT_NO_THROW(run_server(job, *end, update));
          return;
        }
        const auto worker = make_communicator(job, *end, update);
        for (std::uint64_t step = 1; step <= 3; ++step) {
          worker->begin_step();
          for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, end->rank(), step, i));
          for (std::size_t i = 3; i-- > 0;) worker->mean(i, model[i]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// The others hear of a worker that leaves between push and mean, and not of one that is through.
TEST(Means, AWorkerThatOwesNothingLeavesQuietly) {
  for (const bool through : {false, true}) {
    Job job =
        suite_job({"gradient-server", Job::kColocated, Sends::kGradients, two_errors}, "3lc", 1);
    job.checksum_steps = 0;
    const auto ends = make_in_process_network(1);
    {
      const auto worker = make_communicator(job, *ends[0], kNone);
      Model model = zeros(job);
      worker->begin_step();
      for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, 0, 1, i));
      for (std::size_t i = through ? 3 : 2; i-- > 0;) worker->mean(i, model[i]);
    }
    if (through) {
      EXPECT_FALSE(ends[0]->receive(0ms));
    } else {
      expect_error(ErrorCode::kAborted, "left the job before it was finished",
                   [&] { static_cast<void>(ends[0]->receive(0ms)); });
    }
  }
}

}  // namespace
}  // namespace tersewire
