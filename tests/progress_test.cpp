// The progress thread: an exchange goes on while a worker computes, and what fails there is told.
#include <atomic>

#include "exchange_test_support.h"

namespace tersewire {
namespace {

constexpr int kWorkers = 3;

Job ring_job() {
  Job job = job_for("ring", kWorkers, "fp32");
  job.bucket_bytes = 256;
  return job;
}

// What one worker sends in a job of so many steps.
std::uint64_t bytes_of_all(const Job& job, std::uint64_t steps) {
  Behaviour behaviour;
  behaviour.steps = steps;
  const Outcome outcome = run_job(job, behaviour);
  std::uint64_t bytes = 0;
  for (const std::uint64_t sent : outcome.bytes_sent) bytes += sent;
  return bytes;
}

void push_all(const Job& job, Communicator& communicator, int rank, Model& replica) {
  const std::uint64_t step = communicator.begin_step();
  for (std::size_t i = 0; i < replica.size(); ++i) communicator.pull(i, replica[i]);
  for (std::size_t i = replica.size(); i-- > 0;) {
    communicator.push(i, gradient(job, rank, step, i));
  }
}

// Every worker has pushed its gradients and does something else: no call of the library is made,
// and yet all hops of the ring are made, by the time that the test looks.
TEST(Progress, ARingGoesAroundWhileItsWorkersCompute) {
  Job job = ring_job();
  job.checksum_steps = 0;
  const std::uint64_t bytes = bytes_of_all(job, 1);
  const auto ends = make_in_process_network(kWorkers);
  std::vector<Model> replicas(kWorkers, zeros(job));
  std::vector<Model> own(kWorkers, zeros(job));
  std::vector<std::unique_ptr<Communicator>> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    workers.push_back(make_communicator(job, *ends[i], descend(own[i])));
    push_all(job, *workers[i], rank, replicas[i]);
  }
  const auto sent = [&] {
    std::uint64_t sum = 0;
    for (const auto& end : ends) sum += end->bytes_sent();
    return sum;
  };
  const auto limit = std::chrono::steady_clock::now() + job.deadline;
  while (sent() < bytes && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(sent(), bytes);
  for (int rank = 0; rank < kWorkers; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    workers[i]->finish(spans(replicas[i]));
    EXPECT_EQ(replicas[i], replicas[0]);
  }
  EXPECT_EQ(sent(), bytes);
  EXPECT_NE(replicas[0], zeros(job));
}

// What comes while a worker computes ends the job there and then, and its next call says why.
TEST(Progress, WhatFailsMeanwhileIsTold) {
  const Job job = ring_job();
  const auto ends = make_in_process_network(kWorkers);
  Model replica = zeros(job);
  Model own = zeros(job);
  const auto worker = make_communicator(job, *ends[0], descend(own));
  push_all(job, *worker, 0, replica);
  ends[2]->send(0, std::make_shared<const Bytes>(3));
  try {
    ends[1]->receive(job.deadline);  // a sum from worker 0
    while (ends[1]->receive(job.deadline)) continue;
    ADD_FAILURE() << "the job goes on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_NE(std::string(error.what()).find("message from rank 2"), std::string::npos)
        << error.what();
  }
  for (int call = 0; call < 2; ++call) {
    try {
      worker->begin_step();
      ADD_FAILURE() << "the worker goes on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_NE(std::string(error.what()).find("worker 0, step 1: message from rank 2"),
                std::string::npos)
          << error.what();
    }
  }
}

// A network may carry another job afterwards: nothing of that is taken by the thread of the first.
TEST(Progress, LeavesTheNetworkToTheNextJob) {
  const Job job = ring_job();
  auto ends = make_in_process_network(kWorkers);
  for (int round = 0; round < 3; ++round) {
    Behaviour behaviour;
    const Outcome outcome = run_job_over(ends, job, behaviour);
    expect_no_errors(outcome);
    for (int rank = 1; rank < kWorkers; ++rank)
      ends[0]->send(rank, std::make_shared<const Bytes>(1));
    for (int rank = 1; rank < kWorkers; ++rank) {
      const auto got = ends[static_cast<std::size_t>(rank)]->receive(20s);
      ASSERT_TRUE(got);
      EXPECT_EQ(got->bytes->size(), 1U);
    }
  }
}

}  // namespace
}  // namespace tersewire
