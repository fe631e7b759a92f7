// Infrequent communication, and the checksums by which replicas are compared.
#include <algorithm>
#include <exception>

#include "exchange_test_support.h"
#include "expect_error.h"

namespace tersewire {
namespace {

class LocalStepsTest : public testing::TestWithParam<const char*> {};

TEST_P(LocalStepsTest, TheMeanOfTheirGradientsIsExchanged) {
  constexpr int kWorkers = 2;
  constexpr std::uint64_t kSteps = 7;  // two rounds of three, and one step that is left over
  Job job = job_for(GetParam(), kWorkers, "fp32");
  job.local_steps = 3;
  const Outcome outcome = run_job(job, {.steps = kSteps, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    for (std::size_t i = 0; i < job.tensors[tensor].elems(); ++i) {
      double expected = 0;
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        const double steps_in_round = step <= 6 ? 3 : 1;
        for (int worker = 0; worker < kWorkers; ++worker) {
          expected -= gradient_value(worker, step, tensor, i) / steps_in_round / kWorkers;
        }
      }
      ASSERT_NEAR(outcome.replicas[0][tensor][i], expected, 1e-5);
    }
  }
}

TEST_P(LocalStepsTest, TheModelStaysBetweenRounds) {
  Job job = job_for(GetParam(), 1, "fp32");
  job.servers = exchange_traits(job.exchange).workers_own_model ? 0 : 1;
  if (job.exchange == "gradient-server") job.servers = 1;
  job.local_steps = 2;
  const auto ends = make_in_process_network(1 + server_nodes(job));
  Model global = zeros(job);
  std::thread server([&] {
    if (server_nodes(job) == 0) return;
    run_server(job, *ends[1], needs_update(job, 1) ? descend(global) : Update());
  });
  Model own = zeros(job);
  Model replica = zeros(job);
  const auto communicator =
      make_communicator(job, *ends[0], needs_update(job, 0) ? descend(own) : Update());
  for (std::uint64_t step = 1; step <= 4; ++step) {
    ASSERT_EQ(communicator->begin_step(), step);
    for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
    EXPECT_EQ(replica[0][0] == 0, step <= 2) << step;
    for (std::size_t i = 3; i-- > 0;) {
      communicator->push(i, std::vector<float>(job.tensors[i].elems(), 1.0F));
    }
  }
  communicator->finish(spans(replica));
  server.join();
  EXPECT_EQ(replica[0][0], -2.0F);
}

INSTANTIATE_TEST_SUITE_P(Exchanges, LocalStepsTest,
                         testing::Values("parameter-server", "gradient-server", "all-gather",
                                         "ring"));

TEST(LocalSteps, HalveTheTraffic) {
  Job job = job_for("parameter-server", 2, "fp32");
  job.checksum_steps = 0;
  const Outcome every = run_job(job, {.steps = 8, .before_step = {}, .gradient = {}});
  job.local_steps = 2;
  const Outcome second = run_job(job, {.steps = 8, .before_step = {}, .gradient = {}});
  const std::uint64_t done = 28;  // one message, in both
  EXPECT_EQ(every.counters[0].pushed_bytes - done, 2 * (second.counters[0].pushed_bytes - done));
  EXPECT_EQ(every.counters[0].pulled_bytes, 2 * second.counters[0].pulled_bytes);
}

class MissingPushTest : public testing::TestWithParam<bool> {};

// A tensor that is not pushed within a round would be averaged over fewer steps than the others, or
// not at all, and nothing but this would say so.
TEST_P(MissingPushTest, WithinARoundIsFoundOut) {
  const bool updates = GetParam();
  Job job = job_for("all-gather", 1, "fp32");
  (updates ? job.local_updates : job.local_steps) = 3;
  const auto begun = [&](Communicator& communicator, Model& replica, bool all) {
    communicator.begin_step();
    for (std::size_t i = 0; i < replica.size(); ++i) communicator.pull(i, replica[i]);
    for (std::size_t i = replica.size(); i-- > 0;) {
      if (all || i != 1) communicator.push(i, replica[i]);
    }
  };
  for (const bool finishes : {false, true}) {
    if (finishes && updates) continue;  // what it has learned is in `parameters`
    const auto ends = make_in_process_network(1);
    Model own = zeros(job);
    Model replica = zeros(job);
    const auto communicator = make_communicator(job, *ends[0], descend(own));
    begun(*communicator, replica, true);
    begun(*communicator, replica, false);
    expect_error(ErrorCode::kFailedPrecondition, "push every tensor in every step", [&] {
      if (!finishes) return static_cast<void>(communicator->begin_step());
      communicator->finish(spans(replica));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Rounds, MissingPushTest, testing::Bool());

TEST(LocalSteps, MustBeAtLeastOne) {
  Job job = job_for("parameter-server", 2, "fp32");
  job.local_steps = 0;
  EXPECT_THROW(server_nodes(job), Error);
}

class DriftTest : public testing::TestWithParam<const char*> {};

// Runs a job in which worker 1 changes one value of its replica by itself before `step`.
Outcome run_drifting(Job job, std::uint64_t step, std::uint64_t steps) {
  job.progress_limit = 5s;
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  Outcome outcome;
  outcome.errors.resize(ends.size());
  Model global = zeros(job);
  std::vector<std::thread> nodes;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    nodes.emplace_back([&, rank] {
      try {
        const int number = static_cast<int>(rank);
        Model own = zeros(job);
        const Update update = update_of(job, number, global, own);
        if (number >= job.workers) return static_cast<void>(run_server(job, *ends[rank], update));
        Model replica = zeros(job);
        const auto communicator = make_communicator(job, *ends[rank], update);
        for (auto now = communicator->begin_step(); now <= steps;
             now = communicator->begin_step()) {
          if (rank == 1 && now == step) replica[2][1000] += 1.0F;
          for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
          for (std::size_t i = 3; i-- > 0;) {
            communicator->push(i, gradient(job, number, now, i));
          }
        }
        communicator->finish(spans(replica));
      } catch (const std::exception& error) {
        outcome.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  return outcome;
}

TEST_P(DriftTest, AReplicaThatHasDriftedEndsTheJobWithASentence) {
  Job job = job_for(GetParam(), 3, "fp32");
  job.checksum_steps = 4;
  for (const std::uint64_t step : {1, 3}) {
    const Outcome outcome = run_drifting(job, step, 40);
    const std::string expected = std::string("differ before step ") + (step == 1 ? "1:" : "5:");
    for (const std::string& error : outcome.errors) {
      EXPECT_NE(error.find(expected), std::string::npos) << error;
    }
  }
}

TEST_P(DriftTest, TheLastStepIsComparedToo) {
  const Job job = job_for(GetParam(), 2, "fp32");
  const Outcome outcome = run_drifting(job, 5, 6);
  EXPECT_NE(outcome.errors[0].find("differ before step 7"), std::string::npos) << outcome.errors[0];
}

TEST_P(DriftTest, NobodyLooksWhereThatIsSwitchedOff) {
  Job job = job_for(GetParam(), 2, "fp32");
  job.checksum_steps = 0;
  expect_no_errors(run_drifting(job, 1, 3));
}

INSTANTIATE_TEST_SUITE_P(Exchanges, DriftTest,
                         testing::Values("parameter-server", "gradient-server",
                                         "aggregator-tree:fan-in=2", "all-gather", "ring"));

TEST(Overlap, AnExchangeLastsAtLeastAsLongAsItIsWaitedFor) {
  const Outcome outcome = run_job(make_job(2, 1, "fp32"));
  expect_no_errors(outcome);
  for (int worker = 0; worker < 2; ++worker) {
    const Counters& counters = outcome.counters[static_cast<std::size_t>(worker)];
    EXPECT_GT(counters.exchange_seconds, 0);
  }
}

}  // namespace
}  // namespace tersewire
