// What servers can do beyond one parameter server for all: share the workers' nodes, stand in a
// tree, and let workers agree on scalers. Where not said otherwise over threads as ranks.
#include <algorithm>
#include <exception>
#include <limits>
#include <set>

#include "aggregator_tree.h"
#include "exchange_test_support.h"

namespace tersewire {
namespace {

Job colocated(const std::string& exchange, int workers, const std::string& codec) {
  Job job = job_for(exchange, workers, codec);
  job.servers = Job::kColocated;
  return job;
}

class ColocatedTest : public testing::TestWithParam<const char*> {};

TEST_P(ColocatedTest, ComesToTheSameBitsAsServersApart) {
  for (const int workers : {1, 2, 3, 5}) {
    const Job together = colocated(GetParam(), workers, "3lc:s=1.5");
    EXPECT_EQ(server_nodes(together), 0);
    Job apart = together;
    apart.servers = workers;
    const Outcome shared = run_job(together);
    const Outcome separate = run_job(apart);
    expect_no_errors(shared);
    expect_no_errors(separate);
    for (const Model& replica : shared.replicas) expect_equal_bits(replica, separate.replicas[0]);
    expect_equal_bits(shared.global, separate.global);
  }
}

TEST_P(ColocatedTest, EverythingPushedArrives) {
  expect_everything_pushed_arrives(colocated(GetParam(), 3, "3lc"));
}

TEST_P(ColocatedTest, WhatStaysOnANodeIsNotSent) {
  const Outcome alone = run_job(colocated(GetParam(), 1, "3lc"));
  expect_no_errors(alone);
  EXPECT_EQ(alone.bytes_sent[0], 0U);
  const Outcome three = run_job(colocated(GetParam(), 3, "fp32"));
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::size_t node = 0; node < 3; ++node) {
    EXPECT_EQ(three.counters[node].pushed_bytes, three.bytes_sent[node]);
    EXPECT_EQ(three.counters[node].pulled_bytes, three.bytes_received[node]);
    EXPECT_NEAR(static_cast<double>(three.counters[node].pushed_bytes),
                4.0 * static_cast<double>(three.counters[node].pushed_values), 1000);
    sent += three.bytes_sent[node];
    received += three.bytes_received[node];
  }
  EXPECT_GT(sent, 0U);
  EXPECT_EQ(sent, received);
}

TEST_P(ColocatedTest, AWorkerThatLeavesEndsTheJobEverywhere) {
  const auto leave = [](int worker, std::uint64_t step) {
    if (worker == 1 && step == 3) throw std::runtime_error("out of memory");
  };
  const Outcome outcome =
      run_job(colocated(GetParam(), 3, "3lc"), {.steps = 9, .before_step = leave, .gradient = {}});
  for (const std::string& error : outcome.errors) EXPECT_NE(error, "");
}

INSTANTIATE_TEST_SUITE_P(Exchanges, ColocatedTest,
                         testing::Values("parameter-server", "gradient-server"));

TEST(Colocated, AServersFailureReachesItsOwnWorkerAndTheOthers) {
  const Job job = colocated("parameter-server", 2, "fp32");
  const auto ends = make_in_process_network(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> nodes;
  for (int node = 0; node < 2; ++node) {
    nodes.emplace_back([&, node] {
      const auto rank = static_cast<std::size_t>(node);
      const Update fail_at_once = [](auto, auto, auto) {
        throw std::runtime_error("disk is full");
      };
      Model replica = zeros(job);
      try {
        const auto worker = make_communicator(job, *ends[rank], fail_at_once);
        worker->begin_step();
        for (std::size_t i = 0; i < 3; ++i) worker->pull(i, replica[i]);
        for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, node, 1, i));
        worker->finish(spans(replica));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("disk is full"), std::string::npos) << error;
  }
}

// ---- When a server decodes.

// Worker `rank`'s push of all parts of a job in step 1, each value its rank + 1.
SharedBytes ones_from(const Job& job, int rank) {
  MessageWriter writer(
      {.kind = MessageKind::kPush, .sender = static_cast<std::uint32_t>(rank), .step = 1});
  for (const Part& part : job_parts(job)) {
    const std::vector<float> values(part.elems, static_cast<float>(rank + 1));
    writer.add({.tensor = static_cast<std::uint32_t>(part.tensor),
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = std::nullopt,
                .payload = std::as_bytes(std::span(values))});
  }
  return std::make_shared<const Bytes>(writer.take());
}

// What has been decoded is no longer held: of the ranks that are there without a gap all is, so
// that little is left to do when the last push comes, whoever it is from.
TEST(Server, DecodesPushesInTheOrderOfRanksAsTheyArrive) {
  constexpr int kWorkers = 8;
  const std::vector<int> order{0, 1, 3, 2, 4, 6, 5, 7};
  const Job job = make_job(kWorkers, 1, "fp32");
  const auto ends = make_in_process_network(kWorkers + 1);
  Model global = zeros(job);
  std::thread server([&] { run_server(job, *ends[kWorkers], descend(global)); });
  std::vector<std::weak_ptr<const Bytes>> held(kWorkers);
  const auto send = [&](int rank) {
    SharedBytes push = ones_from(job, rank);
    held[static_cast<std::size_t>(rank)] = push;
    ends[static_cast<std::size_t>(rank)]->send(kWorkers, std::move(push));
  };
  const auto is_dropped = [&](int rank) {
    const auto limit = std::chrono::steady_clock::now() + job.deadline;
    while (!held[static_cast<std::size_t>(rank)].expired()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  };
  std::set<int> sent;
  for (const int rank : order) {
    if (rank == order.back()) break;
    send(rank);
    sent.insert(rank);
    int without_gap = 0;
    while (sent.contains(without_gap)) EXPECT_TRUE(is_dropped(without_gap++));
    for (const int later : sent) {
      // Taken before the ones that were dropped just now.
      EXPECT_EQ(held[static_cast<std::size_t>(later)].expired(), later < without_gap);
    }
  }
  send(order.back());
  const auto delta = ends[0]->receive(job.deadline);
  MessageWriter done({.kind = MessageKind::kDone, .sender = 0, .step = 1});
  for (int rank = 0; rank < kWorkers; ++rank) {
    done.clear({.kind = MessageKind::kDone, .sender = static_cast<std::uint32_t>(rank), .step = 1});
    ends[static_cast<std::size_t>(rank)]->send(kWorkers,
                                               std::make_shared<const Bytes>(done.take()));
  }
  server.join();
  ASSERT_TRUE(delta);
  for (const auto& values : global) {
    EXPECT_EQ(values, std::vector<float>(values.size(), -4.5F));
  }
}

TEST(Tree, HasAsManyLevelsAsItsFanInNeeds) {
  const auto tree = make_tree(5, 2);
  // Five workers; three aggregators above them; two above those; the root.
  ASSERT_EQ(tree.size(), 5U + 3 + 2 + 1);
  EXPECT_EQ(tree[0].parent, 5);
  EXPECT_EQ(tree[4].parent, 7);
  EXPECT_EQ(tree[7].children, 1);
  EXPECT_EQ(tree[8].first_child, 5);
  EXPECT_EQ(tree[9].first_child, 7);
  EXPECT_EQ(tree[10].parent, -1);
  EXPECT_EQ(tree[10].workers, 5);
  EXPECT_EQ(make_tree(1, 2).size(), 2U);
  EXPECT_EQ(make_tree(4, 4).size(), 5U);
}

TEST(Tree, AveragesAreThePlainOnesWhateverItsShape) {
  for (const char* exchange :
       {"aggregator-tree:fan-in=2", "aggregator-tree:fan-in=3", "aggregator-tree:fan-in=16"}) {
    const Job job = job_for(exchange, 7, "fp32");
    const Outcome outcome = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
    expect_no_errors(outcome);
    for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
      for (std::size_t i = 0; i < job.tensors[tensor].elems(); ++i) {
        double mean = 0;
        for (int worker = 0; worker < 7; ++worker) mean += gradient_value(worker, 1, tensor, i) / 7;
        ASSERT_NEAR(outcome.replicas[0][tensor][i], -mean, 1e-6);
      }
    }
  }
}

TEST(Tree, ItsNumberOfAggregatorsFollowsFromItsFanIn) {
  Job job = job_for("aggregator-tree:fan-in=2", 8, "fp32");
  EXPECT_EQ(server_nodes(job), 4 + 2 + 1);
  EXPECT_FALSE(needs_update(job, 0));
  EXPECT_FALSE(needs_update(job, 8));
  EXPECT_TRUE(needs_update(job, 14));
  EXPECT_EQ(part_servers(job), std::vector<int>(3, 14));
  job.servers = 3;
  EXPECT_THROW(server_nodes(job), Error);
  job.exchange = "aggregator-tree:fan-in=1";
  EXPECT_THROW(server_nodes(job), Error);
}

TEST(Tree, APullThatDoesNotBelongEndsTheJob) {
  // Ranks 0 and 1 work, 2 and 3 would be their aggregators, were fan-in 1; with 3 workers and
  // fan-in=2 rank 3 is the aggregator of 0 and 1, rank 5 the root.
  const Job job = job_for("aggregator-tree:fan-in=2", 3, "fp32");
  const auto ends = make_in_process_network(6);
  MessageWriter early({.kind = MessageKind::kPull, .sender = 5, .step = 1});
  const Bytes zeros_of_bias(11 * sizeof(float));
  early.add({.tensor = 1,
             .codec = CodecId::kFp32,
             .not_finite = false,
             .description = std::nullopt,
             .payload = zeros_of_bias});
  ends[5]->send(3, std::make_shared<const Bytes>(early.take()));
  try {
    run_server(job, *ends[3]);
    FAIL() << "passed on what nobody had pushed for";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
  }
}

// Ternary sums are exact: the mean is that of the digits that a lone encoder makes under the
// scalers that the workers agreed on.
class ScalerSharingTest : public testing::TestWithParam<const char*> {};

TEST_P(ScalerSharingTest, AveragesAreExactSumsOfDigits) {
  constexpr int kWorkers = 3;
  Job job = job_for("gradient-server:scaler-sharing=on", kWorkers, GetParam());
  job.servers = 2;
  const Outcome outcome = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);
  const std::vector<Part> parts = job_parts(job);
  EXPECT_GT(parts.size(), job.tensors.size());
  for (const Part& part : parts) {
    if (job.tensors[part.tensor].kind == TensorKind::kBias) continue;  // goes as it is
    const auto gradient_of = [&](int worker) {
      const std::vector<float> whole = gradient(job, worker, 1, part.tensor);
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(part.begin);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(part.elems));
    };
    std::vector<std::unique_ptr<Encoder>> encoders;
    float scaler = 0;
    for (int worker = 0; worker < kWorkers; ++worker) {
      encoders.push_back(
          make_codec(GetParam())
              ->make_encoder(part.elems, {.seed = job.seed,
                                          .sender = static_cast<std::uint32_t>(worker),
                                          .tensor = static_cast<std::uint32_t>(part.tensor),
                                          .first_elem = part.begin,
                                          .kind = TensorKind::kDense}));
      const auto own = encoders.back()->local_scalers(gradient_of(worker));
      ASSERT_EQ(own.size(), 1U);
      scaler = std::max(scaler, own[0]);
    }
    std::vector<std::int32_t> sums(part.elems, 0);
    for (int worker = 0; worker < kWorkers; ++worker) {
      Bytes payload;
      const Encoded encoded = encoders[static_cast<std::size_t>(worker)]->encode_under(
          std::vector<float>{scaler}, gradient_of(worker), 1, payload);
      decode_levels_add(encoded.codec, payload, sums);
    }
    const float unit = scaler / kWorkers;
    for (std::size_t i = 0; i < part.elems; ++i) {
      ASSERT_EQ(outcome.replicas[1][part.tensor][part.begin + i],
                -(static_cast<float>(sums[i]) * unit))
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, ScalerSharingTest, testing::Values("terngrad", "stoch3"));

TEST(ScalerSharing, ATensorThatIsNotFiniteTravelsRawFromEveryWorker) {
  Job job = job_for("gradient-server:scaler-sharing=on", 3, "terngrad");
  const auto poison = [](int worker, std::uint64_t step, std::vector<float>& values) {
    if (worker == 1 && step == 2 && values.size() == 1003) {
      values[5] = std::numeric_limits<float>::infinity();
    }
  };
  const Outcome outcome = run_job(job, {.steps = 3, .before_step = {}, .gradient = poison});
  expect_no_errors(outcome);
  for (int worker = 0; worker < 3; ++worker) {
    const auto rank = static_cast<std::size_t>(worker);
    EXPECT_EQ(outcome.replicas[rank][2][5], -std::numeric_limits<float>::infinity());
    expect_equal_bits(outcome.replicas[0], outcome.replicas[rank]);
  }
  // Every worker's other values of that step arrived as they were.
  const Outcome before = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
  const Outcome after = run_job(job, {.steps = 2, .before_step = {}, .gradient = poison});
  for (std::size_t i = 10; i < 1003; ++i) {
    double mean = 0;
    for (int worker = 0; worker < 3; ++worker) mean += gradient_value(worker, 2, 2, i) / 3;
    ASSERT_NEAR(after.replicas[0][2][i] - before.replicas[0][2][i], -mean, 1e-5);
  }
}

TEST(ScalerSharing, ARunRepeatsToTheBit) {
  Job job = job_for("gradient-server:scaler-sharing=on", 5, "terngrad:bucket=100");
  job.servers = 2;
  expect_a_run_repeats(job);
  expect_a_run_repeats(colocated(job.exchange, 3, "terngrad"));
}

TEST(ScalerSharing, PullsShrinkToWhatTheLevelsTake) {
  Job job = job_for("gradient-server:scaler-sharing=on", 4, "terngrad");
  job.checksum_steps = 0;
  job.policy = "";
  const Outcome outcome = run_job(job);
  expect_no_errors(outcome);
  std::size_t elems = 0;
  for (const TensorInfo& tensor : job.tensors) elems += tensor.elems();
  // log2(9) bits a value, and some bytes a step for messages and agreements.
  EXPECT_LT(outcome.counters[0].pulled_bytes, 5 * (elems * 34 / 80 + 300));
}

TEST(ScalerSharing, RubbishIsRefused) {
  Job job = job_for("gradient-server:scaler-sharing=on", 2, "terngrad");
  const auto offer = [](std::uint32_t sender, std::uint64_t step, std::uint32_t tensor,
                        std::size_t scalers, MessageKind kind = MessageKind::kOffer) {
    const std::vector<float> values(scalers, 1.0F);
    MessageWriter writer({.kind = kind, .sender = sender, .step = step});
    writer.add({.tensor = tensor,
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = std::nullopt,
                .payload = std::as_bytes(std::span(values))});
    return std::make_shared<const Bytes>(writer.take());
  };
  const std::vector<std::vector<SharedBytes>> wrong = {
      {offer(0, 2, 0, 1)},                     // a step too early
      {offer(0, 1, 0, 1), offer(0, 1, 0, 1)},  // twice
      {offer(0, 1, 9, 1)},                     // no such tensor
      {offer(0, 1, 0, 1), offer(1, 1, 0, 2)},  // not as many as another worker's
      {offer(0, 1, 0, 1, MessageKind::kAgreement)}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto ends = make_in_process_network(3);
    for (const SharedBytes& bytes : wrong[i]) {
      const auto sender = parse_message(*bytes).header.sender;
      ends[sender]->send(2, bytes);
    }
    try {
      run_server(job, *ends[2]);
      FAIL() << "case " << i << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << i << ": " << error.what();
    }
  }
}

void expect_refused(const Job& job, const char* word) {
  try {
    const auto ends = make_in_process_network(job.workers + 1);
    make_communicator(job, *ends[0], [](auto, auto, auto) {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(ScalerSharing, IsForTernaryPushesAndAllWorkers) {
  expect_refused(job_for("gradient-server:scaler-sharing=on", 2, "3lc"), "terngrad");
  Job job = job_for("gradient-server:scaler-sharing=on", 2, "terngrad");
  job.backup_workers = 1;
  expect_refused(job, "backup");
  expect_refused(job_for("gradient-server:scaler-sharing=maybe", 2, "terngrad"), "on");
  expect_refused(job_for("parameter-server:scaler-sharing=on", 2, "terngrad"), "no parameters");
}

}  // namespace
}  // namespace tersewire
