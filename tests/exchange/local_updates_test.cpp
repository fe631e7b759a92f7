// Workers that change their models by themselves between exchanges.
#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <latch>

#include "exchange_test_support.h"
#include "expect_error.h"

namespace tersewire {
namespace {

// What each worker's own optimizer does: plain descent with rate 1.
void descend_alone(const Job& job, int worker, std::uint64_t step, std::size_t tensor,
                   std::vector<float>& parameters) {
  const std::vector<float> values = gradient(job, worker, step, tensor);
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i] -= values[i];
}

using LocalStep = decltype(descend_alone);

// Every worker's job, with `outer` at the owners of the model.
Outcome run_local(const Job& job, std::uint64_t steps, const Update& outer,
                  LocalStep* take_step = descend_alone) {
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  Outcome outcome = empty_outcome(job);
  std::vector<std::thread> nodes;
  for (const auto& end : ends) {
    nodes.emplace_back([&, rank = end->rank()] {
      const auto number = static_cast<std::size_t>(rank);
      const Update update = needs_update(job, rank) ? outer : Update();
      try {
        if (rank >= job.workers) {
          outcome.counters[number] = run_server(job, *end, update);
          return;
        }
        Model& replica = outcome.replicas[number];
        const auto communicator = make_communicator(job, *end, update);
        for (auto step = communicator->begin_step(); step <= steps;
             step = communicator->begin_step()) {
          for (std::size_t i = 0; i < replica.size(); ++i) communicator->pull(i, replica[i]);
          for (std::size_t i = replica.size(); i-- > 0;) {
            take_step(job, rank, step, i, replica[i]);
            communicator->push(i, replica[i]);
          }
        }
        communicator->finish(spans(replica));
        outcome.counters[number] = communicator->counters();
      } catch (const std::exception& error) {
        outcome.errors[number] = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  return outcome;
}

// Plain averaging with this rate.
Update averaging(float rate) {
  return [rate](const Part&, std::span<const float> mean, std::span<float> delta) {
    std::ranges::transform(mean, delta.begin(), [rate](float value) { return -rate * value; });
  };
}

Job local_job(const std::string& exchange, int workers, int local_updates,
              const std::string& codec = "fp32") {
  Job job = job_for(exchange, workers, codec);
  job.local_updates = local_updates;
  return job;
}

class LocalUpdatesTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Exchanges, LocalUpdatesTest,
                         testing::Values("parameter-server", "gradient-server",
                                         "gradient-server:scaler-sharing=on",
                                         "aggregator-tree:fan-in=2", "all-gather", "ring",
                                         "hierarchical-ring:group=2",
                                         "hierarchical-ring:group=2,top=tree"));

// Two rounds of three steps, and a step that is left over: after each the model has moved by half
// of what the workers came to.
TEST_P(LocalUpdatesTest, TheMeanOfWhatWorkersLearnedMovesTheSharedModel) {
  constexpr int kWorkers = 4;
  constexpr std::uint64_t kSteps = 7;
  Job job = local_job(GetParam(), kWorkers, 3);
  if (job.exchange.ends_with("on")) job.policy = "size<20:terngrad";
  job.checksum_steps = 1;
  for (const bool colocated : {false, true}) {
    if (colocated) job.servers = Job::kColocated;
    if (colocated && job.exchange != "parameter-server") continue;
    const Outcome outcome = run_local(job, kSteps, averaging(0.5F));
    expect_no_errors(outcome);
    for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
    for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
      if (job.policy == "size<20:terngrad" && tensor == 1) continue;  // which rounds
      for (std::size_t i = 0; i < job.tensors[tensor].elems(); ++i) {
        double expected = 0;
        for (std::uint64_t step = 1; step <= kSteps; ++step) {
          for (int worker = 0; worker < kWorkers; ++worker) {
            expected -= 0.5 * gradient_value(worker, step, tensor, i) / kWorkers;
          }
        }
        ASSERT_NEAR(outcome.replicas[0][tensor][i], expected, 1e-5);
      }
    }
  }
}

TEST_P(LocalUpdatesTest, WhatCodecsKeepBackArrivesLater) {
  Job job = local_job(GetParam(), 4, 2, "int8:ef=on");
  if (job.exchange.ends_with("on")) return;
  constexpr std::uint64_t kSteps = 200;
  const Outcome outcome = run_local(job, kSteps, averaging(1));
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  double error = 0;
  double change = 0;
  for (std::size_t i = 0; i < job.tensors[2].elems(); ++i) {
    double expected = 0;
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      for (int worker = 0; worker < 4; ++worker) expected -= gradient_value(worker, step, 2, i) / 4;
    }
    change += expected * expected;
    error += std::pow(outcome.replicas[0][2][i] - expected, 2);
  }
  // Without a residual the errors of a hundred rounds would add up to more.
  EXPECT_LT(std::sqrt(error / change), 0.01);
}

// Workers that come a fifth of the way to their goal in a round's two steps, wherever they are:
// with a lead, which counts what a round did more than once, they go past it by more each time.
TEST(LocalUpdates, CodecsOfRoundsOfManyStepsHaveNoLeadUnlessTold) {
  const auto approach = [](const Job& job, int, std::uint64_t, std::size_t tensor,
                           std::vector<float>& parameters) {
    const std::vector<float> goal = gradient(job, 0, 1, tensor);
    for (std::size_t i = 0; i < goal.size(); ++i) parameters[i] += (goal[i] - parameters[i]) / 9.5F;
  };
  const auto distance_with = [&](const std::string& exchange, const std::string& codec) {
    const Job job = local_job(exchange, 4, 2, codec);
    const Outcome outcome = run_local(job, 120, averaging(1), approach);
    expect_no_errors(outcome);
    double left = 0;
    double whole = 0;
    for (std::size_t i = 0; i < job.tensors[2].elems(); ++i) {
      const double goal = gradient_value(0, 1, 2, i);
      whole += goal * goal;
      left += std::pow(outcome.replicas[0][2][i] - goal, 2);
    }
    return std::sqrt(left / whole);
  };
  for (const char* exchange : {"parameter-server", "gradient-server", "all-gather"}) {
    EXPECT_LT(distance_with(exchange, "3lc"), 0.001);
    const double strong = distance_with(exchange, "3lc:s=1.75");
    EXPECT_LT(strong, 0.1);
    EXPECT_GT(distance_with(exchange, "3lc:s=1.75,lead=3"), 5 * strong);
  }
}

// What a round of one step does not send is as late as what an exchange in every step does not.
TEST(LocalUpdates, CodecsOfRoundsOfOneStepHaveTheirLead) {
  const std::vector<TensorInfo> tensors{{"weight", {100, 100}, TensorKind::kDense}};
  const auto text = [&](const std::string& codec, int local_updates) {
    return choose_codecs("", codec, tensors, local_updates).front()->text();
  };
  for (const char* codec : {"3lc", "3lc:s=1.75", "adacomp", "topk"}) {
    EXPECT_EQ(text(codec, 1), text(codec, 0));
    EXPECT_NE(text(codec, 2), text(codec, 0));
  }
  // And a residual, as those of many steps.
  EXPECT_EQ(text("inceptionn", 1), text("inceptionn:ef=on", 0));
  const Model rounds_of_one =
      run_local(local_job("all-gather", 4, 1, "3lc"), 9, averaging(1)).replicas[0];
  EXPECT_EQ(rounds_of_one,
            run_local(local_job("all-gather", 4, 1, "3lc:lead=2"), 9, averaging(1)).replicas[0]);
  EXPECT_NE(rounds_of_one,
            run_local(local_job("all-gather", 4, 1, "3lc:lead=1"), 9, averaging(1)).replicas[0]);
}

TEST(LocalUpdates, AWorkerGoesItsOwnWayWithinARound) {
  Job job = local_job("all-gather", 1, 2);
  const auto ends = make_in_process_network(1);
  const auto communicator = make_communicator(job, *ends[0], averaging(0.5F));
  Model replica = zeros(job);
  const std::vector<float> expected{0, 1, 1, 2, 2};  // before each step
  for (std::uint64_t step = 1; step <= 4; ++step) {
    ASSERT_EQ(communicator->begin_step(), step);
    for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
    for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
    EXPECT_EQ(replica[2][7], expected[step - 1]) << step;
    for (std::size_t i = 3; i-- > 0;) {
      for (float& value : replica[i]) value += 1;
      communicator->push(i, replica[i]);
    }
  }
  communicator->finish(spans(replica));
  EXPECT_EQ(replica[2][7], expected.back());
}

TEST(LocalUpdates, QuarterTheTraffic) {
  Job job = job_for("parameter-server", 2, "fp32");
  job.checksum_steps = 0;
  const Outcome every = run_job(job, {.steps = 8, .before_step = {}, .gradient = {}});
  job.local_updates = 4;
  const Outcome fourth = run_local(job, 8, averaging(1));
  expect_no_errors(fourth);
  const std::uint64_t done = 28;  // one message, in both
  EXPECT_EQ(every.counters[0].pushed_bytes - done, 4 * (fourth.counters[0].pushed_bytes - done));
  EXPECT_EQ(every.counters[0].pulled_bytes, 4 * fourth.counters[0].pulled_bytes);
}

// With backup workers the others make whole rounds without one that stops within its own.
TEST(LocalUpdates, WhoFallsSilentLosesItsRoundAlone) {
  constexpr int kSilent = 2;
  constexpr std::uint64_t kSteps = 15;
  Job job = local_job("parameter-server", 3, 3);
  job.backup_workers = 1;
  const auto ends = make_in_process_network(4);
  std::vector<Model> replicas(3, zeros(job));
  std::vector<std::string> errors(4);
  std::uint64_t unused = 0;
  // Whom the others overtake before its second round would skip that round, not end it too late.
  std::latch silent_is_in_round_two(1);
  std::latch others_are_far(2);
  const auto work = [&](int rank) {
    Model& replica = replicas[static_cast<std::size_t>(rank)];
    const auto worker = make_communicator(job, *ends[static_cast<std::size_t>(rank)]);
    for (auto step = worker->begin_step(); step <= kSteps; step = worker->begin_step()) {
      if (rank == kSilent && step == 5) {
        silent_is_in_round_two.count_down();
        others_are_far.wait();
      }
      if (rank != kSilent && step == 5) silent_is_in_round_two.wait();
      if (rank != kSilent && step == 13) others_are_far.count_down();
      for (std::size_t i = 0; i < replica.size(); ++i) worker->pull(i, replica[i]);
      for (std::size_t i = replica.size(); i-- > 0;) {
        descend_alone(job, rank, step, i, replica[i]);
        worker->push(i, replica[i]);
      }
    }
    worker->finish(spans(replica));
    if (rank == kSilent) unused = worker->counters().unused_pushes;
  };
  std::vector<std::thread> nodes;
  for (int rank = 0; rank < 4; ++rank) {
    nodes.emplace_back([&, rank] {
      try {
        if (rank == 3) {
          run_server(job, *ends[3], averaging(1));
        } else {
          work(rank);
        }
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  expect_equal_bits(replicas[0], replicas[1]);
  expect_equal_bits(replicas[0], replicas[kSilent]);
  EXPECT_GE(unused, zeros(job).size()) << "of the round that it ended too late";
}

void expect_refused(const Job& job, const std::string& words) {
  expect_error(ErrorCode::kInvalidArgument, words, [&] { server_nodes(job); });
}

TEST(LocalUpdates, ThatMakeNoSenseAreRefused) {
  expect_refused(local_job("parameter-server", 2, -1), "-1 local updates");
  Job job = local_job("parameter-server", 2, 5);
  job.local_steps = 2;
  expect_refused(job, "use one of the two");
  expect_refused(local_job("weight-average:every=2", 2, 5), "use its every=5");
  job = local_job("all-gather", 2, 5);
  job.state_steps = 12;
  expect_refused(job, "local updates exchanged every 5");
  // Which would never send what is small.
  for (const char* exchange : {"parameter-server", "ring"}) {
    expect_refused(local_job(exchange, 2, 5, "inceptionn:ef=off"), "omit ef=off");
  }
}

void expect_out_of_order(const std::function<void()>& task, const std::string& words) {
  try {
    task();
    ADD_FAILURE() << "accepted: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(LocalUpdates, CallsOutOfOrderAreRefused) {
  const Job job = local_job("all-gather", 1, 2);
  const auto with_worker = [&](const auto& task) {
    const auto ends = make_in_process_network(1);
    Model replica = zeros(job);
    const auto worker = make_communicator(job, *ends[0], averaging(1));
    worker->begin_step();
    task(*worker, replica);
  };
  with_worker([](Communicator& worker, Model& replica) {
    expect_out_of_order([&] { worker.push(2, replica[2]); }, "pull tensor");
  });
  with_worker([](Communicator& worker, Model& replica) {
    worker.pull(2, replica[2]);
    worker.push(2, replica[2]);
    expect_out_of_order([&] { worker.push(2, replica[2]); }, "has been pushed in step 1 already");
  });
  with_worker([](Communicator& worker, Model& replica) {
    for (std::size_t i = 0; i < 3; ++i) worker.pull(i, replica[i]);
    for (std::size_t i = 3; i-- > 0;) worker.push(i, replica[i]);
    expect_out_of_order([&] { worker.mean(2, replica[2]); }, "no mean gradient with local");
  });
}

TEST(LocalUpdates, StatesAreOfWholeRounds) {
  const Job job = local_job("all-gather", 1, 2);
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(job, *ends[0], averaging(1));
  Model replica = zeros(job);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    worker->begin_step();
    for (std::size_t i = 0; i < 3; ++i) worker->pull(i, replica[i]);
    if (step == 2) {
      expect_out_of_order([&] { worker->state(); }, "a round of 2 local updates");
    } else {
      EXPECT_EQ(worker->state().step, step - 1);
    }
    for (std::size_t i = 3; i-- > 0;) worker->push(i, replica[i]);
    expect_out_of_order([&] { worker->state(); }, "a round of 2 local updates");
  }
  worker->finish(spans(replica));
}

TEST(LocalUpdates, StatesOfAnotherClockAreRefused) {
  Job steps = job_for("all-gather", 1, "fp32");
  const auto state_after_three = [&] {
    const auto ends = make_in_process_network(1);
    const auto worker = make_communicator(steps, *ends[0], averaging(1));
    Model replica = zeros(steps);
    for (int step = 0; step < 4; ++step) {
      worker->begin_step();
      for (std::size_t i = 0; i < 3; ++i) worker->pull(i, replica[i]);
      if (step == 3) break;
      for (std::size_t i = 3; i-- > 0;) worker->push(i, replica[i]);
    }
    NodeState state = worker->state();
    worker->finish(spans(replica));
    return state;
  }();
  ASSERT_EQ(state_after_three.step, 3U);
  const Job updates = local_job("all-gather", 1, 2);
  const auto ends = make_in_process_network(1);
  const auto expect_invalid = [](const auto& task, const std::string& words) {
    try {
      task();
      ADD_FAILURE() << "accepted: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  expect_invalid(
      [&] { make_communicator(updates, *ends[0], averaging(1), nullptr, &state_after_three); },
      "step 3 is within a round of 2 local updates");
  expect_invalid([&] { redistribute(std::vector{state_after_three}, steps, updates); },
                 "a job with 0 local updates");
}

}  // namespace
}  // namespace tersewire
