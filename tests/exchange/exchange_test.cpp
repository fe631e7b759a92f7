// The exchanges in which every worker keeps the model, over threads as ranks.
#include <algorithm>
#include <numeric>

#include "exchange_test_support.h"
#include "expect_error.h"

namespace tersewire {
namespace {

struct Case {
  const char* exchange;
  int workers;
  std::optional<int> servers;
  const char* codec;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const std::optional<int> servers = info.param.servers;
  std::string name = std::string(info.param.exchange) + "_" + std::to_string(info.param.workers) +
                     "_" + (servers ? std::to_string(*servers) : "needed") + "_" + info.param.codec;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

Job job_of(const Case& test) {
  Job job = make_job(test.workers, test.servers, test.codec);
  job.exchange = test.exchange;
  return job;
}

class ExchangeTest : public testing::TestWithParam<Case> {};

TEST_P(ExchangeTest, ReplicasAreIdenticalAndEverythingPushedArrives) {
  expect_everything_pushed_arrives(job_of(GetParam()));
}

TEST_P(ExchangeTest, ARunRepeatsToTheBit) { expect_a_run_repeats(job_of(GetParam())); }

TEST_P(ExchangeTest, WhatIsSentArrivesAndIsCounted) {
  const Job job = job_of(GetParam());
  const Outcome outcome = run_job(job);
  expect_no_errors(outcome);
  const auto sum = [](const std::vector<std::uint64_t>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  };
  // Nothing is left for whoever uses the network next.
  EXPECT_EQ(sum(outcome.bytes_sent), sum(outcome.bytes_received));
  EXPECT_EQ(sum(outcome.bytes_sent) > 0, outcome.counters.size() > 1);
  for (std::size_t worker = 0; worker < outcome.replicas.size(); ++worker) {
    EXPECT_EQ(outcome.counters[worker].pushed_bytes, outcome.bytes_sent[worker]);
    EXPECT_EQ(outcome.counters[worker].pulled_bytes, outcome.bytes_received[worker]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeTest,
    testing::Values(
        Case{"gradient-server", 1, 1, "fp32"}, Case{"gradient-server", 2, 1, "3lc"},
        Case{"gradient-server", 3, 2, "3lc:s=1.75"}, Case{"gradient-server", 5, 3, "fp32"},
        Case{"gradient-server", 8, 1, "3lc"}, Case{"all-gather", 1, 0, "3lc"},
        Case{"all-gather", 2, 0, "fp32"}, Case{"all-gather", 3, 0, "3lc:s=1.75"},
        Case{"all-gather", 5, 0, "3lc"}, Case{"all-gather", 8, 0, "3lc:s=1.5"},
        Case{"ring", 1, 0, "fp32"}, Case{"ring", 2, 0, "fp32"}, Case{"ring", 3, 0, "fp16:ef=on"},
        Case{"ring", 5, 0, "int8:ef=on"}, Case{"ring", 8, 0, "fp32"},
        Case{"aggregator-tree:fan-in=2", 1, {}, "3lc"},
        Case{"aggregator-tree:fan-in=2", 2, {}, "3lc"},
        Case{"aggregator-tree:fan-in=2", 5, {}, "fp32"},
        Case{"aggregator-tree:fan-in=2", 8, {}, "3lc"},
        Case{"aggregator-tree:fan-in=3", 8, {}, "3lc:s=1.75"},
        Case{"hierarchical-ring", 1, 0, "fp32"}, Case{"hierarchical-ring", 2, 0, "int8:ef=on"},
        Case{"hierarchical-ring:group=3", 3, 0, "fp16:ef=on"},
        Case{"hierarchical-ring:group=2", 4, 0, "int8:ef=on"},
        Case{"hierarchical-ring:group=2", 6, 0, "inceptionn:bound=2^-14,ef=on"},
        Case{"hierarchical-ring:group=3", 6, 0, "fp16:ef=on"},
        Case{"hierarchical-ring:group=4", 8, 0, "int8:ef=on"},
        Case{"hierarchical-ring", 9, 0, "bf16:ef=on"},
        Case{"hierarchical-ring:top=tree", 1, 1, "fp32"},
        Case{"hierarchical-ring:top=tree,group=1", 3, 1, "int8:ef=on"},
        Case{"hierarchical-ring:top=tree,group=2", 4, 2, "int8:ef=on"},
        Case{"hierarchical-ring:top=tree,group=3", 6, 1, "inceptionn:bound=2^-14,ef=on"},
        Case{"hierarchical-ring:top=tree,group=4", 8, 2, "fp16:ef=on"}),
    name_of);

TEST(AllGather, TheMeanIsThePlainMeanForFp32) {
  Job job = make_job(3, 0, "fp32");
  job.exchange = "all-gather";
  const Outcome outcome = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    for (std::size_t i = 0; i < outcome.replicas[0][tensor].size(); ++i) {
      float mean = 0;
      for (int worker = 0; worker < 3; ++worker) {
        mean += (1.0F / 3) * gradient_value(worker, 1, tensor, i);
      }
      ASSERT_EQ(outcome.replicas[0][tensor][i], -mean);
    }
  }
}

void expect_refused(const Job& job, const char* word) {
  const auto ends = make_in_process_network(job.workers + job.servers.value_or(0));
  try {
    make_communicator(job, *ends[0], [](auto, auto, auto) {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(Exchanges, JobsThatMakeNoSenseAreRefused) {
  Job job = make_job(2, 0, "fp32");
  job.exchange = "telepathy";
  expect_refused(job, "all-gather");
  job.exchange = "gradient-server";
  expect_refused(job, "0 servers");
  job = make_job(2, 1, "fp32");
  job.exchange = "all-gather";
  expect_refused(job, "has no servers");
  job = make_job(2, 0, "fp32");
  job.exchange = "all-gather";
  job.backup_workers = 1;
  expect_refused(job, "backup");
  job = make_job(2, 1, "fp32");
  expect_refused(job, "does not own the model");
  job = make_job(2, 0, "3lc");
  job.exchange = "ring";
  expect_refused(job, "does not fit exchange ring");
  job.exchange = "hierarchical-ring";
  expect_refused(job, "does not fit exchange hierarchical-ring");
}

TEST(Exchanges, GroupsThatMakeNoSenseAreRefused) {
  Job job = make_job(6, 0, "fp32");
  job.exchange = "hierarchical-ring:group=4";
  expect_refused(job, "a number that divides the 6 workers");
  job.exchange = "hierarchical-ring:group=7";
  expect_refused(job, "from 1 to 6");
  job.exchange = "hierarchical-ring:top=star";
  expect_refused(job, "ring, tree");
  job.exchange = "ring:group=2";
  expect_refused(job, "no parameters");
  job.exchange = "hierarchical-ring:group=2,top=tree";
  expect_refused(job, "use 1 to 2 servers");
  job.servers = 3;
  expect_refused(job, "use 1 to 2 servers");
  job.servers = Job::kColocated;
  expect_refused(job, "has no colocated servers; use 1 to 2 servers");
  job.servers = 1;
  job.backup_workers = 1;
  expect_refused(job, "backup");
  job.backup_workers = 0;
  job.exchange = "hierarchical-ring:group=2";
  expect_refused(job, "has no servers");
}

TEST(Exchanges, HaveTraitsWhateverTheirParameters) {
  EXPECT_TRUE(exchange_traits("weight-average:every=3").averages_weights);
  EXPECT_FALSE(exchange_traits("weight-average").elastic);
  EXPECT_FALSE(exchange_traits("aggregator-tree").workers_own_model);
  EXPECT_TRUE(exchange_traits("gradient-server:scaler-sharing=on").shards);
  EXPECT_THROW(exchange_traits("rings"), Error);
}

TEST(Exchanges, AnOwnerWithoutAnUpdateIsRefused) {
  Job job = make_job(1, 0, "fp32");
  job.exchange = "all-gather";
  const auto ends = make_in_process_network(1);
  EXPECT_THROW(make_communicator(job, *ends[0]), Error);
}

class PeerFailureTest : public testing::TestWithParam<const char*> {};

TEST_P(PeerFailureTest, AWorkerThatLeavesEndsTheJobEverywhere) {
  Job job = make_job(4, 0, "fp32");
  job.exchange = GetParam();
  job.servers.reset();
  const auto leave = [](int worker, std::uint64_t step) {
    if (worker == 1 && step == 3) throw std::runtime_error("out of memory");
  };
  const Outcome outcome = run_job(job, {.steps = 9, .before_step = leave, .gradient = {}});
  for (const std::string& error : outcome.errors) EXPECT_NE(error, "");
}

TEST_P(PeerFailureTest, AWorkerThatHasLeftIsNotWaitedFor) {
  Job job = make_job(4, 0, "fp32");
  job.exchange = GetParam();
  job.servers.reset();
  auto ends = make_in_process_network(job.workers + server_nodes(job));
  ends[3].reset();  // without a word
  Outcome outcome = empty_outcome(job);
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    if (end) threads.emplace_back([&] { run_node(job, *end, {}, outcome); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (!ends[rank]) continue;
    EXPECT_NE(outcome.errors[rank].find("rank 3 has left the job"), std::string::npos)
        << outcome.errors[rank];
  }
}

// What a worker of two tensors does: pushes in a step, and then.
void expect_refused(const std::string& sentence, const std::vector<std::size_t>& pushed,
                    const std::function<void(Communicator&, Model&)>& then) {
  SCOPED_TRACE(sentence);
  const Job job = job_for("gradient-server", 1, "3lc");
  const auto ends = make_in_process_network(1 + server_nodes(job));
  std::thread server([&] {
    try {
      run_server(job, *ends[1]);
    } catch (const Error&) {  // the worker's
    }
  });
  Model model = zeros(job);
  Model own = zeros(job);
  {
    const auto worker = make_communicator(job, *ends[0], descend(own));
    worker->begin_step();
    for (std::size_t i = 0; i < 3; ++i) worker->pull(i, model[i]);
    for (const std::size_t i : pushed) worker->push(i, model[i]);
    expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { then(*worker, model); });
  }
  server.join();
}

TEST(Exchanges, AStepWithoutAPushOfEveryTensorIsRefused) {
  const std::string missing = "worker 0, step 1: tensor 'first.bias' was not pushed";
  const auto begin = [](Communicator& worker, Model&) { worker.begin_step(); };
  const auto finish = [](Communicator& worker, Model& model) { worker.finish(spans(model)); };
  expect_refused(missing, {2, 0}, begin);
  expect_refused(missing, {2, 0}, finish);
  expect_refused("tensor 'first.weight' was not pushed", {}, begin);
}

TEST(Exchanges, NothingFollowsFinish) {
  const auto after = [](const std::function<void(Communicator&, Model&)>& call) {
    return [call](Communicator& worker, Model& model) {
      worker.finish(spans(model));
      call(worker, model);
    };
  };
  const std::string sentence = "has finished the job";
  expect_refused(sentence, {2, 1, 0}, after([](auto& worker, Model&) { worker.begin_step(); }));
  expect_refused(sentence, {2, 1, 0},
                 after([](auto& worker, Model& model) { worker.pull(1, model[1]); }));
  expect_refused(sentence, {2, 1, 0},
                 after([](auto& worker, Model& model) { worker.push(1, model[1]); }));
  expect_refused(sentence, {2, 1, 0},
                 after([](auto& worker, Model& model) { worker.finish(spans(model)); }));
}

// One ends a step before the others, and closes its end of the network.
TEST(Exchanges, AWorkerThatEndsEarlyIsNamed) {
  for (const char* exchange : {"ring", "all-gather", "weight-average", "gradient-server",
                               "gradient-server:scaler-sharing=on"}) {
    SCOPED_TRACE(exchange);
    Job job = job_for(exchange, 3, "int8");
    if (job.exchange.ends_with("=on")) job.push_codec = "terngrad";
    auto ends = make_in_process_network(3 + server_nodes(job));
    Outcome outcome = empty_outcome(job);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Behaviour behaviour;
        behaviour.steps = rank == 1 ? 3 : 4;
        run_node(job, *ends[rank], behaviour, outcome);
        ends[rank].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int rank : {0, 2}) {
      EXPECT_NE(outcome.errors[static_cast<std::size_t>(rank)].find("after the same step"),
                std::string::npos)
          << outcome.errors[static_cast<std::size_t>(rank)];
    }
  }
}

// As for tensors that an application does not train.
TEST(Exchanges, AnUpdateThatWritesNothingChangesNothing) {
  for (const char* exchange : {"parameter-server", "all-gather"}) {
    for (const int staleness : {0, 1}) {
      Job job = job_for(exchange, 2, "3lc");
      if (staleness > 0 && job.exchange != "parameter-server") continue;
      job.staleness = staleness;
      const auto ends = make_in_process_network(2 + server_nodes(job));
      std::vector<Model> models(2, zeros(job));
      const auto frozen = [](const Part& part, std::span<const float> mean,
                             std::span<float> delta) {
        if (part.tensor != 1) std::ranges::copy(mean, delta.begin());
      };
      std::vector<std::thread> threads;
      for (const auto& end : ends) {
        threads.emplace_back([&] {
          if (end->rank() >= 2) {
            EXPECT_NO_THROW(run_server(job, *end, frozen));
            return;
          }
          Model& model = models[static_cast<std::size_t>(end->rank())];
          const auto worker =
              make_communicator(job, *end, needs_update(job, end->rank()) ? frozen : Update());
          for (std::uint64_t step = worker->begin_step(); step <= 4; step = worker->begin_step()) {
            for (std::size_t i = 0; i < 3; ++i) worker->pull(i, model[i]);
            for (std::size_t i = 3; i-- > 0;) {
              worker->push(i, gradient(job, end->rank(), step, i));
            }
          }
          worker->finish(spans(model));
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const Model& model : models) {
        EXPECT_EQ(model[1], std::vector<float>(11, 0.0F));
        EXPECT_NE(model[2], std::vector<float>(1003, 0.0F));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PeerFailureTest,
                         testing::Values("gradient-server", "all-gather", "ring",
                                         "hierarchical-ring:group=2",
                                         "hierarchical-ring:group=2,top=tree",
                                         "hierarchical-ring:group=1,top=tree"));

Bytes message(std::uint32_t sender, std::uint64_t step, std::uint32_t tensor, CodecId codec,
              ByteView payload, MessageKind kind = MessageKind::kPush) {
  MessageWriter writer({.kind = kind, .sender = sender, .step = step});
  writer.add({.tensor = tensor,
              .codec = codec,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  return writer.take();
}

TEST(AllGather, RubbishFromAPeerEndsTheJobWithItsName) {
  Job job = make_job(2, 0, "fp32");
  job.exchange = "all-gather";
  job.progress_limit = std::chrono::seconds(5);
  const Bytes good(11 * sizeof(float));
  const std::vector<Bytes> wrong = {
      Bytes(40),                                                    // no message
      message(0, 1, 1, CodecId::kFp32, good),                       // another's name
      message(1, 2, 1, CodecId::kFp32, good),                       // another step
      message(1, 1, 9, CodecId::kFp32, good),                       // no such tensor
      message(1, 1, 1, CodecId::kFp32, ByteView(good).subspan(4)),  // too short
      message(1, 1, 1, CodecId::kThreeLc, good),                    // no such payload
      message(1, 1, 1, CodecId::kFp32, good, MessageKind::kPull)};  // another kind
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto ends = make_in_process_network(2);
    Model replica = zeros(job);
    Model own = zeros(job);
    const auto worker = make_communicator(job, *ends[0], descend(own));
    ends[1]->send(0, std::make_shared<const Bytes>(wrong[i]));
    try {
      worker->begin_step();
      for (std::size_t t = 0; t < replica.size(); ++t) worker->push(t, gradient(job, 0, 1, t));
      worker->begin_step();
      worker->pull(1, replica[1]);
      FAIL() << "case " << i << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << i << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find('1'), std::string::npos) << error.what();
    }
    for (const auto& values : replica) {
      EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return value == 0; })) << i;
    }
    EXPECT_THROW(ends[1]->receive(std::chrono::milliseconds(0)), Error);
  }
}

}  // namespace
}  // namespace tersewire
