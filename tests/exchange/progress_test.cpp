// The progress thread: an exchange goes on while a worker computes, and what fails there is told.
#include <atomic>
#include <cctype>
#include <filesystem>
#include <iterator>

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

// Counters are for any thread, while the worker takes steps: alone, none of its values cross a
// link.
TEST(Progress, CountersAreReadInOtherThreads) {
  Job job = job_for("gradient-server", 1, "fp32");
  job.servers = Job::kColocated;
  const auto ends = make_in_process_network(1);
  Model replica = zeros(job);
  Model own = zeros(job);
  const auto worker = make_communicator(job, *ends[0], descend(own));
  std::atomic<int> reading{4};
  std::atomic<std::uint64_t> crossed{0};
  std::vector<std::jthread> readers;
  for (int reader = reading; reader > 0; --reader) {
    readers.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) crossed += worker->counters().pushed_values;
      --reading;
    });
  }
  while (reading > 0) push_all(job, *worker, 0, replica);
  readers.clear();
  worker->finish(spans(replica));
  EXPECT_EQ(crossed, 0U);
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

TEST(Progress, AnUpdateThatCallsItsCommunicatorIsToldSo) {
  Job job = job_for("all-gather", 1, "fp32");
  const auto ends = make_in_process_network(1);
  Communicator* called = nullptr;
  const auto communicator = make_communicator(
      job, *ends[0],
      [&](const Part&, std::span<const float>, std::span<float>) { called->encoded_bytes(); });
  called = communicator.get();
  Model replica = zeros(job);
  expect_error(ErrorCode::kFailedPrecondition, "an Update has called the communicator", [&] {
    push_all(job, *communicator, 0, replica);
    push_all(job, *communicator, 0, replica);
  });
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// Nodes of one process share the threads that take their messages: none has one of its own.
TEST(Progress, ManyWorkersShareFewThreads) {
  Job job = ring_job();
  job.workers = 64;
  const auto ends = make_in_process_network(job.workers);
  const std::size_t before = threads_of_this_process();
  std::vector<Model> own(64, zeros(job));
  std::vector<std::unique_ptr<Communicator>> workers;
  for (std::size_t i = 0; i < own.size(); ++i) {
    workers.push_back(make_communicator(job, *ends[i], descend(own[i])));
  }
  EXPECT_LE(threads_of_this_process(), before + std::max(1U, std::thread::hardware_concurrency()));
}

// ---- What a peer can make a node hold.

struct Receiver {
  std::string exchange;
  MessageKind kind;  // of what a node takes from rank 1
  bool server;       // whether it is the server, of rank 2
};

std::string receiver_name(const testing::TestParamInfo<Receiver>& info) {
  std::string name = info.param.exchange + (info.param.server ? "_server" : "_worker");
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class FrameLengthTest : public testing::TestWithParam<Receiver> {};

INSTANTIATE_TEST_SUITE_P(All, FrameLengthTest,
                         testing::Values(Receiver{"parameter-server", MessageKind::kPush, true},
                                         Receiver{"gradient-server", MessageKind::kPush, true},
                                         Receiver{"aggregator-tree", MessageKind::kPush, true},
                                         Receiver{"all-gather", MessageKind::kPush, false},
                                         Receiver{"ring", MessageKind::kPush, false},
                                         Receiver{"weight-average", MessageKind::kPush, false},
                                         Receiver{"weight-average:mode=asynchronous",
                                                  MessageKind::kPull, false}),
                         receiver_name);

// The first message of step 1 for a tensor of ten values, with so many bytes.
SharedBytes first_message(const Receiver& receiver, std::size_t payload_bytes) {
  const Bytes payload(payload_bytes);
  MessageWriter writer({.kind = receiver.kind, .sender = 1, .step = 1});
  writer.add({.tensor = 0,
              .part = receiver.exchange == "ring" ? 1U : 0U,
              .codec = CodecId::kFp32,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  return std::make_shared<const Bytes>(writer.take());
}

Job job_of_ten_values(const std::string& exchange) {
  Job job;
  job.tensors = {{"ten", {10}}};
  job.workers = 2;
  job.exchange = exchange;
  job.push_codec = job.pull_codec = "fp32";
  job.deadline = 20s;
  return job;
}

// It is refused when it comes, and not only when it is decoded.
TEST_P(FrameLengthTest, AFrameThatIsTooLongEndsTheJobAtOnce) {
  const Job job = job_of_ten_values(GetParam().exchange);
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  // In a ring of two, worker 1 begins with block 1: five of the values.
  const std::size_t longest =
      sizeof(float) * (GetParam().exchange == "ring" ? std::size_t{5} : std::size_t{10});
  const std::size_t node = GetParam().server ? 2 : 0;
  Model own = zeros(job);
  std::string reason;
  try {
    if (GetParam().server) {
      ends[1]->send(2, first_message(GetParam(), longest + 1));
      run_server(job, *ends[node], needs_update(job, 2) ? descend(own) : Update());
    } else {
      const auto worker = make_communicator(job, *ends[node], descend(own));
      ends[1]->send(0, first_message(GetParam(), longest + 1));
      while (ends[1]->receive(job.deadline)) continue;
    }
    ADD_FAILURE() << "the job goes on";
  } catch (const Error& error) {
    reason = error.what();
  }
  EXPECT_NE(reason.find("from rank 1: its frame of"), std::string::npos) << reason;
  EXPECT_NE(reason.find(std::to_string(longest + 1) + " bytes"), std::string::npos) << reason;
}

}  // namespace
}  // namespace tersewire
