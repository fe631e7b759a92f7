// Jobs of means, and what a rank keeps of one when it goes on as another.
#include "python/mean_job.h"

#include <gtest/gtest.h>

#include <cmath>

#include "expect_error.h"

namespace tersewire::python {
namespace {

Job job_of(const std::string& exchange, const std::string& codec) {
  Job job;
  job.tensors = {{"weight", {40, 30}, TensorKind::kDense}, {"bias", {30}, TensorKind::kBias}};
  job.exchange = exchange;
  job.workers = 3;
  job.push_codec = job.pull_codec = codec;
  job.policy = "";
  return mean_job(std::move(job), false);
}

// A rank's first state with other values in all residuals that there are.
NodeState owing(const Job& job, int rank) {
  NodeState state = first_state(job, rank);
  float value = 1.0F + static_cast<float>(rank);
  for (auto* lists : {&state.pushed, &state.pulled}) {
    for (std::vector<float>& residual : *lists) {
      for (float& element : residual) element = std::sin(value += 1.0F);
    }
  }
  return state;
}

// What all ranks together owe the means of a value: a worker's residual is of its own gradient, a
// server's of the mean.
PartValues owed(const Job& job, const std::vector<NodeState>& states) {
  PartValues sums;
  for (const TensorInfo& tensor : job.tensors) sums.emplace_back(tensor.elems(), 0.0F);
  const auto add = [&](const PartValues& values, float weight) {
    const PartValues tensors = by_tensor(job, values);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (std::size_t k = 0; k < tensors[i].size(); ++k) sums[i][k] += weight * tensors[i][k];
    }
  };
  for (const NodeState& state : states) {
    add(state.pushed, 1.0F / static_cast<float>(job.workers));
    add(state.pulled, 1.0F);
  }
  return sums;
}

std::vector<NodeState> all_moved(const std::vector<NodeState>& states, const Job& from,
                                 const Job& to) {
  std::vector<NodeState> now;
  for (int rank = 0; rank < from.workers; ++rank) {
    now.push_back(moved(states[static_cast<std::size_t>(rank)], from, to, rank));
  }
  return now;
}

std::vector<NodeState> all_owing(const Job& job) {
  std::vector<NodeState> states;
  for (int rank = 0; rank < job.workers; ++rank) {
    states.push_back(owing(job, rank));
    states.back().step = 7;
  }
  return states;
}

TEST(MovedState, NothingIsLostOnTheWayToAnotherCodecOrExchange) {
  std::vector<Job> jobs = {job_of("gradient-server", "3lc"), job_of("all-gather", "topk"),
                           job_of("gradient-server", "int8:ef=on"), job_of("ring", "int8:ef=on")};
  jobs.push_back(jobs.front());
  jobs.back().pull_codec = "3lc:ef=off";
  for (const Job& from : jobs) {
    const std::vector<NodeState> states = all_owing(from);
    const PartValues before = owed(from, states);
    for (const Job& to : jobs) {
      SCOPED_TRACE(from.exchange + " " + from.push_codec + " to " + to.exchange + " " +
                   to.push_codec);
      const std::vector<NodeState> now = all_moved(states, from, to);
      const PartValues after = owed(to, now);
      for (std::size_t tensor = 0; tensor < before.size(); ++tensor) {
        for (std::size_t i = 0; i < before[tensor].size(); ++i) {
          ASSERT_NEAR(after[tensor][i], before[tensor][i], 1e-5) << tensor << " " << i;
        }
      }
      for (std::size_t rank = 0; rank < now.size(); ++rank) {
        EXPECT_EQ(now[rank].step, 7U);
        EXPECT_EQ(now[rank].rank, static_cast<int>(rank));
        EXPECT_NO_THROW(first_state(to, static_cast<int>(rank), &now[rank]));
      }
    }
  }
}

TEST(MovedState, DifferencesBeginAnew) {
  const Job differences = job_of("all-gather", "3lc:ef=21");
  const Job residuals = job_of("all-gather", "3lc");
  for (const NodeState& state : all_moved(all_owing(residuals), residuals, differences)) {
    for (const std::vector<float>& kept : state.pushed) {
      for (const float value : kept) ASSERT_EQ(value, 0);
    }
  }
  const auto now = all_moved(all_owing(differences), differences, residuals);
  for (const std::vector<float>& tensor : owed(residuals, now)) {
    for (const float value : tensor) ASSERT_EQ(value, 0);
  }
}

TEST(MovedState, ACodecThatKeepsNoResidualIsRefusedWhereOneIsOwed) {
  const Job from = job_of("gradient-server", "3lc");
  const Job to = job_of("gradient-server", "fp16");
  expect_error(ErrorCode::kInvalidArgument,
               "tensor 'weight' has a residual that is still to be sent, and its new codec fp16",
               [&] { static_cast<void>(moved(owing(from, 1), from, to, 1)); });
  for (const std::vector<float>& kept : moved(first_state(to, 1), to, from, 1).pushed) {
    EXPECT_EQ(kept, std::vector<float>(kept.size(), 0.0F));
  }
}

TEST(MeanJob, ExchangesWithoutAMeanOfAStepAreRefused) {
  for (const char* exchange : {"parameter-server", "weight-average"}) {
    expect_error(ErrorCode::kInvalidArgument, "has no mean gradient of a step",
                 [&] { job_of(exchange, "fp32"); });
  }
  Job job;
  job.tensors = {{"weight", {9}}};
  job.workers = 2;
  job.push_codec = job.pull_codec = "fp32";
  job.exchange = "parameter-server";
  EXPECT_EQ(mean_job(job, true).servers, Job::kColocated);
  job.exchange = "ring";
  expect_error(ErrorCode::kInvalidArgument, "exchange ring has no", [&] { mean_job(job, true); });
}

}  // namespace
}  // namespace tersewire::python
