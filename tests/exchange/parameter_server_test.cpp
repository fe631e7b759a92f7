// The parameter server over threads as ranks: what it computes, when it sends, how it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "exchange_test_support.h"
#include "tersewire/passing_transport.h"

namespace tersewire {
namespace {

struct Size {
  int workers;
  int servers;
  const char* codec;
};

class ParameterServerTest : public testing::TestWithParam<Size> {};

TEST_P(ParameterServerTest, ReplicasAreIdenticalAndEverythingPushedArrives) {
  expect_everything_pushed_arrives(
      make_job(GetParam().workers, GetParam().servers, GetParam().codec));
}

TEST_P(ParameterServerTest, ARunRepeatsToTheBit) {
  expect_a_run_repeats(make_job(GetParam().workers, GetParam().servers, GetParam().codec));
}

TEST_P(ParameterServerTest, CountsEveryByteOnTheWire) {
  Job job = make_job(GetParam().workers, GetParam().servers, GetParam().codec);
  job.checksum_steps = 0;  // they go from workers to workers
  const Outcome outcome = run_job(job);
  std::uint64_t pushed = 0;
  std::uint64_t pulled = 0;
  std::uint64_t arrived = 0;
  std::uint64_t sent = 0;
  for (std::size_t rank = 0; rank < outcome.counters.size(); ++rank) {
    const bool worker = rank < outcome.replicas.size();
    (worker ? pushed : arrived) += outcome.counters[rank].pushed_bytes;
    (worker ? pulled : sent) += outcome.counters[rank].pulled_bytes;
  }
  EXPECT_GT(pushed, 0U);
  EXPECT_EQ(pushed, arrived);
  EXPECT_EQ(pulled, sent);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ParameterServerTest,
                         testing::Values(Size{1, 1, "fp32"}, Size{1, 1, "3lc"}, Size{2, 1, "3lc"},
                                         Size{3, 2, "fp32"}, Size{3, 3, "3lc:s=1.75"},
                                         Size{5, 2, "3lc:mode=paper,s=1.5,layout=partitions"},
                                         Size{8, 3, "3lc:mode=paper,s=1.9"}));

TEST(ParameterServer, MeanIsThePlainMeanForFp32) {
  const Job job = make_job(3, 1, "fp32");
  const Outcome outcome = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    for (std::size_t i = 0; i < outcome.global[tensor].size(); ++i) {
      float mean = 0;
      for (int worker = 0; worker < 3; ++worker) {
        mean += (1.0F / 3) * gradient_value(worker, 1, tensor, i);
      }
      ASSERT_EQ(outcome.global[tensor][i], -mean);
    }
  }
}

TEST(ParameterServer, FinishAfterAPushWaitsForThatStepsDelta) {
  // Straight after the last push, without beginning a step that is not computed.
  const Job job = make_job(2, 1, "fp32");
  auto ends = make_in_process_network(3);
  Model global = zeros(job);
  std::vector<Model> replicas(2, zeros(job));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = make_communicator(job, *ends[rank]);
      for (int i = 0; i < 3; ++i) {
        const auto step = communicator->begin_step();
        for (std::size_t t = 0; t < 3; ++t) communicator->pull(t, replicas[rank][t]);
        for (std::size_t t = 3; t-- > 0;) {
          communicator->push(t, gradient(job, static_cast<int>(rank), step, t));
        }
      }
      communicator->finish(spans(replicas[rank]));
    });
  }
  run_server(job, *ends[2], descend(global));
  for (std::thread& thread : threads) thread.join();
  expect_equal_bits(replicas[0], global);
  expect_equal_bits(replicas[1], global);
}

TEST(ParameterServer, WorkersThatEndAfterDifferentStepsAreNoticed) {
  Job job = make_job(2, 1, "fp32");
  job.progress_limit = 200ms;
  auto ends = make_in_process_network(3);
  Model global = zeros(job);
  const auto work = [&](std::size_t rank, int steps) {
    Model replica = zeros(job);
    const auto communicator = make_communicator(job, *ends[rank]);
    for (int i = 0; i < steps; ++i) {
      const auto step = communicator->begin_step();
      for (std::size_t t = 0; t < 3; ++t) communicator->pull(t, replica[t]);
      for (std::size_t t = 3; t-- > 0;) {
        communicator->push(t, gradient(job, static_cast<int>(rank), step, t));
      }
    }
    communicator->finish(spans(replica));
  };
  std::thread one([&] {
    try {
      work(0, 1);
    } catch (const Error&) {
      // It may still be taking its last deltas when the server ends the job.
    }
  });
  std::thread two([&] { EXPECT_THROW(work(1, 2), Error); });
  try {
    run_server(job, *ends[2], descend(global));
    ADD_FAILURE() << "the server took it for an end";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("same step"), std::string::npos) << error.what();
  }
  one.join();
  two.join();
}

TEST(ParameterServer, ABadJobOnOneNodeEndsTheOthersAtOnce) {
  const Job job = make_job(1, 1, "3lc");
  Job bad = job;
  bad.push_codec = "4lc";
  auto ends = make_in_process_network(2);
  Model global = zeros(job);
  EXPECT_THROW(run_server(bad, *ends[1], descend(global)), Error);
  EXPECT_THROW(make_communicator(job, *ends[0])->begin_step(), Error);
}

TEST(ParameterServer, SpreadsPartsOverServersBySize) {
  Job job = make_job(1, 2, "3lc");
  // Of 407, 11 and 1003 values: the last is cut at half of all.
  EXPECT_EQ(part_servers(job), (std::vector<int>{1, 2, 2, 1}));
  job.part_values = Job::kWholeTensors;
  EXPECT_EQ(part_servers(job), (std::vector<int>{2, 2, 1}));
}

TEST(ParameterServer, ATensorsDeltaComesBeforeTheOthersArePushed) {
  // One worker pushes the last tensor alone, as the backward pass does first, and pulls it in the
  // next step while the server has not seen the others: no barrier spans tensors.
  Job job = make_job(1, 1, "3lc");
  job.bucket_bytes = 1;  // each tensor by itself
  auto ends = make_in_process_network(2);
  Model global = zeros(job);
  std::thread server([&] { run_server(job, *ends[1], descend(global)); });
  {
    const auto communicator = make_communicator(job, *ends[0]);
    Model replica = zeros(job);
    communicator->begin_step();
    for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
    communicator->push(2, gradient(job, 0, 1, 2));
    const auto limit = std::chrono::steady_clock::now() + job.deadline;
    while (ends[1]->bytes_sent() == 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_GT(ends[1]->bytes_sent(), 0U);  // its delta is on the way
    communicator->push(1, gradient(job, 0, 1, 1));
    communicator->push(0, gradient(job, 0, 1, 0));
    communicator->begin_step();
    communicator->finish(spans(replica));
  }
  server.join();
}

// A transport that holds back messages to one rank for which `held` is true, until released.
class HoldingTransport final : public PassingTransport {
 public:
  HoldingTransport(Transport& inner, std::function<bool(int, const Bytes&)> held)
      : PassingTransport(inner), held_(std::move(held)) {}

  void send(int to, SharedBytes bytes) override {
    const std::lock_guard lock(mutex_);
    if (!released_ && held_(to, *bytes)) {
      waiting_.emplace_back(to, std::move(bytes));
      return;
    }
    PassingTransport::send(to, std::move(bytes));
  }

  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    for (auto& [to, bytes] : waiting_) end().send(to, std::move(bytes));
    waiting_.clear();
  }

 private:
  std::function<bool(int, const Bytes&)> held_;
  std::mutex mutex_;
  bool released_ = false;
  std::vector<std::pair<int, SharedBytes>> waiting_;
};

TEST(ParameterServer, TheFirstLayersPullDoesNotWaitForTheLast) {
  const Job job = make_job(1, 1, "3lc");
  auto ends = make_in_process_network(2);
  HoldingTransport holding(*ends[1], [](int, const Bytes& bytes) {
    const Message message = parse_message(bytes);
    return message.frames[message.frames.size() - 1].tensor == 2;
  });
  Model global = zeros(job);
  std::thread server([&] { run_server(job, holding, descend(global)); });
  {
    const auto communicator = make_communicator(job, *ends[0]);
    Model replica = zeros(job);
    communicator->begin_step();
    for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
    for (std::size_t i = 3; i-- > 0;) communicator->push(i, gradient(job, 0, 1, i));
    communicator->begin_step();
    // The last tensor's delta is held back, and these return all the same.
    communicator->pull(0, replica[0]);
    communicator->pull(1, replica[1]);
    EXPECT_TRUE(std::ranges::any_of(replica[0], [](float v) { return v != 0; }));
    holding.release();
    communicator->pull(2, replica[2]);
    EXPECT_TRUE(std::ranges::any_of(replica[2], [](float v) { return v != 0; }));
    communicator->finish(spans(replica));
  }
  server.join();
}

TEST(ParameterServer, BackupWorkersLetAStepAdvanceAndLoseNothing) {
  // Worker 2 pushes its first step when the others are at their tenth: they advance without it.
  // Afterwards everything that anyone pushed is either in the model or in a residual; here it is
  // enough that the job ends, that the replicas agree, and that unused pushes were noticed by their
  // sender.
  Job job = make_job(3, 1, "3lc");
  job.backup_workers = 1;
  std::atomic<bool> began = false;
  std::atomic<bool> far_ahead = false;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 2) {
      began = true;
      began.notify_all();
      far_ahead.wait(false);
    } else {
      if (step >= 2) began.wait(false);
      if (step >= 10) {
        far_ahead = true;
        far_ahead.notify_all();
      }
    }
  };
  const Outcome outcome = run_job(job, {.steps = 30, .before_step = slow, .gradient = {}});
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  EXPECT_GT(outcome.counters[2].unused_pushes, 0U);
}

// A server played by hand, so that the test decides whose push is used.
void answer(Transport& server, std::uint64_t step, std::uint32_t tensor, ByteView payload,
            CodecId codec, std::byte contributors) {
  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(server.rank()),
                        .step = step});
  const Bytes bitmap{contributors};
  writer.add({.tensor = tensor,
              .codec = CodecId::kContributors,
              .not_finite = false,
              .description = std::nullopt,
              .payload = bitmap});
  writer.add({.tensor = tensor,
              .codec = codec,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  server.send(0, std::make_shared<const Bytes>(writer.take()));
}

TEST(ParameterServer, AnUnusedPushReturnsToItsSendersResidual) {
  Job job;
  job.tensors = {{"only", {64}, TensorKind::kDense}};
  // As published: there what was sent and what is left make up the input to the bit.
  job.push_codec = job.pull_codec = "3lc:mode=paper";
  job.policy = "";
  job.workers = 2;
  job.backup_workers = 1;
  job.checksum_steps = 0;
  auto ends = make_in_process_network(3);
  const auto communicator = make_communicator(job, *ends[0]);
  std::vector<float> parameters(64, 0.0F);
  const auto pushed_values = [&](std::uint64_t step) {
    const auto incoming = ends[2]->receive(job.deadline);
    const Message message = parse_message(*incoming->bytes);
    EXPECT_EQ(message.header.step, step);
    std::vector<float> values(64);
    decode(message.frames[0].codec, message.frames[0].payload, values);
    return values;
  };
  const auto nothing = make_codec("3lc")->make_encoder(64);
  Bytes zero_delta;
  nothing->encode(std::vector<float>(64, 0.0F), 0, zero_delta);

  std::vector<float> gradient_1(64);
  std::iota(gradient_1.begin(), gradient_1.end(), -20.0F);
  communicator->begin_step();
  communicator->pull(0, parameters);
  communicator->push(0, gradient_1);
  const std::vector<float> first = pushed_values(1);
  // The bitmap that names the other worker alone: this one's push was not used.
  answer(*ends[2], 1, 0, zero_delta, CodecId::kThreeLc, std::byte{2});

  communicator->begin_step();
  communicator->pull(0, parameters);
  EXPECT_EQ(communicator->counters().unused_pushes, 1U);
  communicator->push(0, std::vector<float>(64, 0.0F));
  // Nothing was lost: with a gradient of 0 the residual alone is encoded again, to the same.
  EXPECT_EQ(pushed_values(2), first);
  ends[1]->abort("the test is over");
}

TEST(ParameterServer, ANaNTravelsAndIsCounted) {
  const Job job = make_job(2, 1, "3lc");
  const auto poison = [](int worker, std::uint64_t step, std::vector<float>& values) {
    if (worker == 1 && step == 3 && values.size() == 1003) {
      values[5] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  const Outcome outcome = run_job(job, {.steps = 4, .before_step = {}, .gradient = poison});
  expect_no_errors(outcome);
  EXPECT_TRUE(std::isnan(outcome.replicas[0][2][5]));
  EXPECT_TRUE(std::isnan(outcome.replicas[1][2][5]));
  EXPECT_FALSE(std::isnan(outcome.replicas[0][2][6]));
  EXPECT_EQ(outcome.counters[1].not_finite_tensors, 1U);
}

void expect_all_failed(const Outcome& outcome, const std::string& part) {
  for (const std::string& error : outcome.errors) {
    EXPECT_NE(error.find(part), std::string::npos) << "got: " << error;
  }
}

TEST(ParameterServer, AWorkerThatFailsEndsTheJobEverywhere) {
  const Job job = make_job(3, 2, "3lc");
  const auto fail_once = [](int worker, std::uint64_t step) {
    if (worker == 1 && step == 3) throw std::runtime_error("worker 1 ran out of luck");
  };
  const Outcome outcome = run_job(job, {.steps = 10, .before_step = fail_once, .gradient = {}});
  for (std::size_t rank : {0U, 2U, 3U, 4U}) {
    EXPECT_NE(outcome.errors[rank].find("worker 1 left the job"), std::string::npos)
        << outcome.errors[rank];
  }
}

TEST(ParameterServer, AnUpdateThatThrowsEndsTheJobEverywhere) {
  const Job job = make_job(2, 1, "3lc");
  auto ends = make_in_process_network(3);
  Outcome outcome;
  outcome.replicas.assign(2, zeros(job));
  outcome.counters.resize(3);
  outcome.errors.resize(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        if (rank < 2) return run_worker(job, *ends[rank], {}, outcome, 5);
        run_server(job, *ends[rank], [](const Part&, std::span<const float>, std::span<float>) {
          throw std::runtime_error("no optimizer");
        });
      } catch (const std::exception& error) {
        outcome.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all_failed(outcome, "no optimizer");
}

TEST(ParameterServer, SilenceEndsAtTheDeadline) {
  Job job = make_job(1, 1, "3lc");
  job.progress_limit = 50ms;
  auto ends = make_in_process_network(2);
  const auto communicator = make_communicator(job, *ends[0]);
  Model replica = zeros(job);
  communicator->begin_step();
  for (std::size_t i = 0; i < 3; ++i) communicator->pull(i, replica[i]);
  for (std::size_t i = 3; i-- > 0;) communicator->push(i, replica[i]);
  communicator->begin_step();
  try {
    communicator->pull(0, replica[0]);
    FAIL() << "nobody sent a delta";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string(error.what()).find("tensor 'first.weight'"), std::string::npos);
  }
  EXPECT_THROW(ends[1]->receive(0ms), Error);
}

TEST(ParameterServer, RubbishFromAWorkerEndsTheJobWithItsName) {
  const Job job = make_job(1, 1, "3lc");
  const std::vector<std::function<Bytes()>> rubbish{
      [] { return Bytes(100, std::byte{7}); },
      [] {
        return MessageWriter({MessageKind::kPull, 0, 1}).take();
      },
      [] {
        return MessageWriter({MessageKind::kDone, 5, 1}).take();
      },
      [] {
        MessageWriter writer({MessageKind::kPush, 0, 1});
        writer.add({.tensor = 9,
                    .codec = CodecId::kFp32,
                    .not_finite = false,
                    .description = std::nullopt,
                    .payload = {}});
        return writer.take();
      },
      [] {
        MessageWriter writer({MessageKind::kPush, 0, 7});
        writer.add({.tensor = 1,
                    .codec = CodecId::kFp32,
                    .not_finite = false,
                    .description = std::nullopt,
                    .payload = {}});
        return writer.take();
      },
      [] {
        MessageWriter writer({MessageKind::kPush, 0, 1});
        const Bytes short_payload(12, std::byte{0});
        writer.add({.tensor = 1,
                    .codec = CodecId::kFp32,
                    .not_finite = false,
                    .description = std::nullopt,
                    .payload = short_payload});
        return writer.take();
      }};
  for (const auto& make : rubbish) {
    auto ends = make_in_process_network(2);
    Model global = zeros(job);
    ends[0]->send(1, std::make_shared<const Bytes>(make()));
    try {
      run_server(job, *ends[1], descend(global));
      FAIL() << "the server took rubbish";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
      const std::string sentence = error.what();
      EXPECT_TRUE(sentence.find("rank 0") != std::string::npos ||
                  sentence.find("worker 0") != std::string::npos)
          << sentence;
    }
    EXPECT_EQ(global, zeros(job));
  }
}

TEST(ParameterServer, JobsThatMakeNoSenseAreRefused) {
  const auto refuses = [](const std::function<void(Job&)>& change, const std::string& part) {
    Job job = make_job(2, 1, "3lc");
    change(job);
    auto ends = make_in_process_network(3);
    try {
      make_communicator(job, *ends[0]);
      FAIL() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses([](Job& job) { job.exchange = "carrier-pigeon"; }, "carrier-pigeon");
  refuses([](Job& job) { job.servers = 4; }, "4 servers");
  refuses([](Job& job) { job.workers = 0; }, "at least 1 worker");
  refuses([](Job& job) { job.workers = 5; }, "network of 6 nodes");
  refuses([](Job& job) { job.backup_workers = 2; }, "cannot be backups");
  refuses([](Job& job) { job.deadline = 0ms; }, "deadline of 0 ms");
  refuses([](Job& job) { job.deadline = std::chrono::milliseconds::max(); }, "30 days");
  refuses([](Job& job) { job.progress_limit = 0ms; }, "progress limit of 0 ms");
  refuses([](Job& job) { job.tensors.clear(); }, "no tensors");
  refuses([](Job& job) { job.tensors[1].name = "first.weight"; }, "two tensors");
  refuses([](Job& job) { job.push_codec = "4lc"; }, "4lc");
  refuses([](Job& job) { job.policy = "kind=norm:fp32"; }, "matches none");
}

}  // namespace
}  // namespace tersewire
