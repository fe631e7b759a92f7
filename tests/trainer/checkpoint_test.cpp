// A job that goes on from a checkpoint ends as one that was never interrupted.
#include "trainer/files/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tersewire/error.h"
#include "train_test_support.h"
#include "trainer/files/checkpoint_saver.h"
#include "trainer/files/exchange_pieces.h"
#include "trainer/loop/local_nodes.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kSteps = 24;
constexpr std::uint64_t kBetween = 6;

TrainConfig small_job(const std::string& exchange, const std::string& codec) {
  TrainConfig config;
  config.model = "small-mlp";
  config.job.workers = 3;
  config.steps = kSteps;
  config.batch = 4;
  config.job.exchange = exchange;
  config.job.push_codec = config.job.pull_codec = codec;
  config.job.policy = "small";
  config.job.state_steps = kBetween;
  return config;
}

void expect_same(const TrainResult& resumed, const TrainResult& whole) {
  EXPECT_EQ(resumed.parameters_checksum, whole.parameters_checksum);
  EXPECT_EQ(resumed.final_loss, whole.final_loss);
  EXPECT_EQ(resumed.test_accuracy, whole.test_accuracy);
  EXPECT_EQ(resumed.test_loss, whole.test_loss);
  EXPECT_EQ(resumed.diverged_step, whole.diverged_step);
  EXPECT_EQ(resumed.steps, whole.steps);
}

struct System {
  const char* name;
  TrainConfig config;
};

std::vector<System> systems() {
  std::vector<System> systems{
      {"three_lc", small_job("parameter-server", "3lc:s=1.75")},
      {"three_lc_on_servers_of_workers", small_job("parameter-server", "3lc:s=1.75")},
      {"terngrad", small_job("gradient-server:scaler-sharing=on", "terngrad")},
      {"inceptionn", small_job("ring", "inceptionn:bound=2^-10,ef=on")},
      {"inceptionn_tree", small_job("aggregator-tree:fan-in=2", "3lc")},
      {"adacomp", small_job("all-gather", "adacomp")},
      {"oland_raj", small_job("weight-average:every=3", "oland-raj:ef=on")},
      {"local_steps_and_adam", small_job("parameter-server", "topk")},
      {"local_updates_of_workers", small_job("all-gather", "3lc")},
      {"local_updates_and_adam", small_job("parameter-server", "int8:ef=on")},
      {"fragments_of_servers", small_job("parameter-server", "3lc")},
      {"fragments_of_workers", small_job("all-gather", "int8")}};
  systems[1].config.job.servers = Job::kColocated;
  systems[7].config.job.local_steps = 2;
  systems[8].config.job.local_updates = 3;
  systems[8].config.outer = "nesterov";
  systems[9].config.job.local_updates = 2;
  systems[9].config.outer = "sgd:lr=0.9,momentum=0.5";
  systems[9].config.clip = 1;
  for (const std::size_t streaming : {10U, 11U}) {
    systems[streaming].config.job.local_updates = kBetween;
    systems[streaming].config.outer = "nesterov";
    systems[streaming].config.job.fragments = 2;
    systems[streaming].config.job.delay = 1;
  }
  systems[10].config.job.servers = Job::kColocated;
  for (const std::size_t adam : {7U, 9U, 11U}) {
    systems[adam].config.optimizer = "adam";
    systems[adam].config.learning_rate = 0.001;
    systems[adam].config.ema = 0.9;
  }
  return systems;
}

class EverySystem : public testing::TestWithParam<System> {};

TEST_P(EverySystem, GoesOnToTheBit) {
  const TrainConfig& config = GetParam().config;
  Checkpoints saved(config);
  const TrainResult whole = train(config, small_data(), saved.hooks());
  for (const std::uint64_t step : {kBetween, 3 * kBetween}) {
    SCOPED_TRACE(testing::Message() << "after step " << step);
    const JobCheckpoint checkpoint = saved.after(step);
    Checkpoints again(config);
    const TrainResult resumed = train(config, small_data(), again.hooks(), &checkpoint);
    expect_same(resumed, whole);
    EXPECT_EQ(resumed.resumed_after, step);
    EXPECT_EQ(resumed.worker_counters.pushed_values, whole.worker_counters.pushed_values);
    EXPECT_EQ(resumed.worker_counters.pulled_values, whole.worker_counters.pulled_values);
    if (step == 3 * kBetween) continue;
    // What it saves later is what was saved then.
    auto later = saved.nodes_after(3 * kBetween);
    auto later_again = again.nodes_after(3 * kBetween);
    ASSERT_EQ(later.size(), later_again.size());
    for (std::size_t i = 0; i < later.size(); ++i) {
      for (const auto& [name, array] : later[i].arrays) {
        ASSERT_EQ(array.values, later_again[i].arrays.at(name).values) << name;
      }
      // Times do not repeat, nor the bytes of the comparison of replicas that a resumption adds.
      later[i].facts.erase("totals");
      later_again[i].facts.erase("totals");
      EXPECT_EQ(later[i].facts, later_again[i].facts);
    }
  }
}

using Values = std::map<std::string, std::vector<double>>;  // by tensor

// What nodes hold in a group, added up.
Values sums_of(const std::vector<NodeCheckpoint>& nodes, const std::string& group) {
  Values sums;
  for (const NodeCheckpoint& node : nodes) {
    for (const auto& [key, array] : node.arrays) {
      if (!key.starts_with(group + "/")) continue;
      const std::string name = key.substr(group.size() + 1);
      const std::size_t at = name.find('@');
      const std::size_t begin = at == std::string::npos ? 0 : std::stoul(name.substr(at + 1));
      std::vector<double>& sum = sums[name.substr(0, at)];
      sum.resize(std::max(sum.size(), begin + array.values.size()));
      for (std::size_t i = 0; i < array.values.size(); ++i) sum[begin + i] += array.values[i];
    }
  }
  return sums;
}

void expect_near(const Values& found, const Values& expected) {
  for (const auto& [name, values] : expected) {
    const bool is_there = found.contains(name);
    EXPECT_EQ(is_there ? found.at(name).size() : 0, values.size()) << name;
    for (std::size_t i = 0; is_there && i < values.size(); ++i) {
      ASSERT_NEAR(found.at(name)[i], values[i], 1e-6) << name << ' ' << i;
    }
  }
}

// The residuals with which the nodes of another job begin.
std::vector<NodeCheckpoint> begun_with(const JobCheckpoint& checkpoint, const Job& job) {
  const ExchangeReader reader(checkpoint, job);
  std::vector<NodeCheckpoint> nodes;
  for (int rank = 0; rank < job.workers + server_nodes(job); ++rank) {
    add_exchange(nodes.emplace_back(), reader.state_of(rank), job, job_parts(job));
  }
  return nodes;
}

// The model of the servers, or of all workers.
Values owned(const std::vector<NodeCheckpoint>& nodes) {
  const Values servers = sums_of(nodes, kServerGroup);
  return servers.empty() ? sums_of({nodes[0]}, kModelGroup) : servers;
}

TEST_P(EverySystem, GoesOnWithAnotherNumberOfWorkers) {
  TrainConfig config = GetParam().config;
  config.steps = kBetween + 1;
  Checkpoints saved(config);
  train(config, small_data(), saved.hooks());
  const JobCheckpoint checkpoint = saved.after(kBetween);
  const std::vector<NodeCheckpoint> before = saved.nodes_after(kBetween);
  config.steps = 2 * kBetween + 1;
  config.learning_rate = 1e-30;  // what was saved stays as it is
  const Job& job = config.job;
  for (const int workers : {2, 4}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    config.job.workers = workers;
    const auto begun = begun_with(checkpoint, job_of(config));
    // Aggregators' residuals are owed to each worker below.
    const bool tree = job.exchange.starts_with("aggregator-tree");
    if (!tree) {
      expect_near(sums_of(begun, kPushedGroup), sums_of(before, kPushedGroup));
    }
    for (const char* group : {kPulledGroup, kAccumulatedGroup}) {
      expect_near(sums_of(begun, group), sums_of(before, group));
    }
    Checkpoints again(config);
    const TrainResult resumed = train(config, small_data(), again.hooks(), &checkpoint);
    EXPECT_EQ(resumed.resumed_after, kBetween);
    EXPECT_EQ(resumed.steps, config.steps);
    const std::vector<NodeCheckpoint> after = again.nodes_after(2 * kBetween);
    ASSERT_EQ(after.size(), begun.size());
    // Where gradients are exchanged: weights move by residuals, and outer optimizers by momentum.
    const bool gradients = job.local_updates == 0 && !job.exchange.starts_with("weight-average");
    if (gradients) {
      EXPECT_EQ(owned(after), owned(before));
    }
    // What replicas have still to be sent, servers hold.
    if (job.fragments > 1 || sums_of(after, kServerGroup).empty()) continue;
    Values sent = sums_of({after[0]}, kModelGroup);
    for (const auto& [name, values] : sums_of(after, kPulledGroup)) {
      for (std::size_t i = 0; i < values.size(); ++i) sent[name][i] += values[i];
    }
    expect_near(sent, sums_of(after, kServerGroup));
  }
}

// How many values of each node's file a process read, by group.
using Reads = std::map<std::pair<int, std::string>, std::size_t>;

JobCheckpoint counting(JobCheckpoint checkpoint, Reads& reads, std::mutex& mutex) {
  for (StoredNode& node : checkpoint.nodes) {
    for (auto& [name, array] : node.arrays) {
      const std::pair key(node.rank, name.substr(0, name.find('/')));
      array.read = [key, read = array.read, &reads, &mutex](std::size_t first,
                                                            std::span<float> values) {
        {
          const std::lock_guard lock(mutex);
          reads[key] += values.size();
        }
        read(first, values);
      };
    }
  }
  return checkpoint;
}

std::size_t values_in(const StoredNode& node, const std::string& group = "") {
  std::size_t values = 0;
  for (const auto& [name, array] : node.arrays) {
    if (name.starts_with(group)) values += array.elems;
  }
  return values;
}

// Where every node is a process of its own.
TEST_P(EverySystem, ANodeReadsItsOwnState) {
  const TrainConfig& config = GetParam().config;
  Checkpoints saved(config);
  train(config, small_data(), saved.hooks());
  const JobCheckpoint checkpoint = saved.after(kBetween);
  auto ends = join_network(config);
  std::vector<Reads> reads(ends.size());
  std::mutex mutex;
  std::vector<std::thread> processes;
  for (auto& end : ends) {
    const auto rank = static_cast<std::size_t>(end->rank());
    processes.emplace_back([&, rank, own = std::move(end)]() mutable {
      const JobCheckpoint counted = counting(checkpoint, reads[rank], mutex);
      std::vector<std::unique_ptr<Transport>> one;
      one.push_back(std::move(own));
      EXPECT_NO_THROW(train(config, small_data(), {}, std::move(one), &counted));
    });
  }
  for (std::thread& process : processes) process.join();
  for (std::size_t rank = 0; rank < reads.size(); ++rank) {
    std::size_t total = 0;
    for (const auto& [from, values] : reads[rank]) {
      total += values;
      if (from.first == static_cast<int>(rank)) continue;
      // A replica like all others.
      EXPECT_EQ(from.first, 0) << from.second;
      for (const char* residual : {"pushed", "pulled", "accumulated", "server"}) {
        EXPECT_NE(from.second, residual) << "of node " << from.first << " by " << rank;
      }
    }
    const StoredNode& first = checkpoint.nodes.front();
    const std::size_t replica = values_in(first) - values_in(first, "pushed") -
                                values_in(first, "pulled") - values_in(first, "accumulated");
    EXPECT_LE(total, values_in(checkpoint.nodes[rank]) + replica) << rank;
    EXPECT_GE(total, values_in(checkpoint.nodes[rank])) << rank;
  }
}

// What the nodes of a job come to, each a process of its own, of which one is asked to end the run
// after the third step and has it end together, by the rank.
struct Asked {
  std::optional<TrainResult> result;  // rank 0's
  std::uint64_t last = 0;             // as the one that was asked hears it
  std::vector<ErrorCode> failures;
};

Asked ask_one(const TrainConfig& config, Checkpoints& saved, int asked) {
  auto ends = join_network(config);
  std::vector<std::atomic<bool>> stops(ends.size());
  std::mutex mutex;
  Asked outcome;
  std::vector<std::thread> processes;
  for (auto& end : ends) {
    const int rank = end->rank();
    processes.emplace_back([&, rank, own = std::move(end)]() mutable {
      TrainHooks hooks = saved.hooks();
      hooks.stop = &stops[static_cast<std::size_t>(rank)];
      hooks.on_step = [&](const StepReport& report) {
        if (report.step == 3) stops[static_cast<std::size_t>(asked)] = true;
      };
      if (rank == asked) hooks.on_ending = [&](std::uint64_t last) { outcome.last = last; };
      std::vector<std::unique_ptr<Transport>> one;
      one.push_back(std::move(own));
      try {
        auto result = train(config, small_data(), hooks, std::move(one));
        if (rank == 0) outcome.result = std::move(result);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        outcome.failures.push_back(error.code());
      }
    });
  }
  for (std::thread& process : processes) process.join();
  return outcome;
}

TEST_P(EverySystem, ProcessesEndTogetherWhereOneIsAskedTo) {
  const TrainConfig& config = GetParam().config;
  const TrainResult whole = train(config, small_data(), {});
  const int last_rank = config.job.workers + server_nodes(config) - 1;
  for (const int asked : {0, 1, last_rank}) {
    SCOPED_TRACE(testing::Message() << "rank " << asked);
    Checkpoints saved(config);
    const Asked ended = ask_one(config, saved, asked);
    if (config.job.exchange.starts_with("weight-average")) {  // which has no states between
      EXPECT_EQ(std::ranges::count(ended.failures, ErrorCode::kCancelled), 1);
      EXPECT_EQ(ended.failures.size(), static_cast<std::size_t>(last_rank) + 1);
      continue;
    }
    EXPECT_TRUE(ended.failures.empty());
    ASSERT_TRUE(ended.result);
    EXPECT_EQ(ended.result->stopped_by, asked);
    EXPECT_EQ(ended.result->steps, ended.last);
    EXPECT_GE(ended.last, 3U);
    ASSERT_LT(ended.last, kSteps);
    const JobCheckpoint checkpoint = saved.after(ended.last);
    ASSERT_EQ(checkpoint.nodes.size(), static_cast<std::size_t>(last_rank) + 1);
    expect_same(train(config, small_data(), {}, &checkpoint), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EverySystem, testing::ValuesIn(systems()),
                         [](const auto& test) { return std::string(test.param.name); });

// Where members come and go, and the model is their servers'.
TEST(ServersOfWorkers, EachNodeKeepsWhatTheOneBeforeHas) {
  TrainConfig config = small_job("parameter-server", "3lc:s=1.75");
  config.job.servers = Job::kColocated;
  config.elastic = true;
  Checkpoints saved(config);
  auto ends = join_network(config);
  std::vector<std::thread> processes;
  for (auto& end : ends) {
    processes.emplace_back([&, own = std::move(end)]() mutable {
      std::vector<std::unique_ptr<Transport>> one;
      one.push_back(std::move(own));
      EXPECT_NO_THROW(train(config, small_data(), saved.hooks(), std::move(one)));
    });
  }
  for (std::thread& process : processes) process.join();
  for (std::uint64_t step = kBetween; step <= kSteps; step += kBetween) {
    const auto nodes = saved.nodes_after(step);
    ASSERT_EQ(nodes.size(), 3U);
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const NodeCheckpoint& before = nodes[(rank + nodes.size() - 1) % nodes.size()];
      std::size_t copied = 0;
      for (const auto& [key, array] : before.arrays) {
        if (!is_of_server(key)) continue;
        ASSERT_TRUE(nodes[rank].copies.contains(key)) << key;
        EXPECT_EQ(nodes[rank].copies.at(key).values, array.values) << key;
        ++copied;
      }
      EXPECT_EQ(nodes[rank].copies.size(), copied);
      EXPECT_GT(copied, 0U);
    }
  }
}

class Refusals : public testing::Test {
 protected:
  void SetUp() override {
    Checkpoints saved(config_);
    train(config_, small_data(), saved.hooks());
    checkpoint_ = saved.after(kBetween);
  }
  void expect_refused(const TrainConfig& config, const DataSplits& data, const std::string& part) {
    try {
      train(config, data, {}, &checkpoint_);
      ADD_FAILURE() << "accepted; expected " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  TrainConfig config_ = small_job("parameter-server", "3lc");
  JobCheckpoint checkpoint_;
};

TEST_F(Refusals, AnotherModel) {
  config_.model = "lenet";
  expect_refused(config_, small_data(), "with the model that it was made from");
}

TEST_F(Refusals, AnotherOptimizer) {
  config_.optimizer = "adam";
  expect_refused(config_, small_data(), "exp_avg");
}

TEST_F(Refusals, AnotherDataSet) {
  const DataSplits other{std::make_shared<ImageSamples>(generate_stroke_digits(2, 0, 600)),
                         small_data().test, "other"};
  expect_refused(config_, other, "other data than 'other'");
}

TEST_F(Refusals, ACodecThatKeepsNothing) {
  config_.job.push_codec = "fp32";
  expect_refused(config_, small_data(), "residual");
}

TEST_F(Refusals, AMissingArray) {
  for (auto& node : checkpoint_.nodes) node.arrays.erase("momentum/fc2.weight");
  expect_refused(config_, small_data(), "'momentum/fc2.weight'");
}

TEST_F(Refusals, AResidualThatIsNotThere) {
  checkpoint_.nodes[1].arrays.erase("pushed/fc1.weight");
  expect_refused(config_, small_data(), "fc1.weight");
}

TEST_F(Refusals, AnArrayOfAnotherSize) {
  --checkpoint_.nodes[0].arrays["model/fc1.bias"].elems;
  expect_refused(config_, small_data(), "'model/fc1.bias' has 15 values");
}

TEST_F(Refusals, NumbersThatAreNone) {
  checkpoint_.nodes[2].facts["losses"] = "1.5 oops";
  expect_refused(config_, small_data(), "are not numbers");
}

// ---- Beside the training.

using namespace std::chrono_literals;

// What a thread waits for until another has done it.
class Signal {
 public:
  void give() {
    {
      const std::lock_guard lock(mutex_);
      given_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool wait(std::chrono::seconds timeout = 60s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return given_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
};

TEST_P(EverySystem, StepsGoOnWhileACheckpointIsWritten) {
  const TrainConfig& config = GetParam().config;
  Signal steps_later;
  std::atomic<int> written{0};
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    if (report.step == kBetween + 3) steps_later.give();
  };
  hooks.on_checkpoint = [&](const NodeCheckpoint& /*node*/) {
    EXPECT_TRUE(steps_later.wait());
    ++written;
  };
  train(config, small_data(), hooks);
  const int nodes = config.job.workers + server_nodes(config);
  EXPECT_EQ(written, nodes * static_cast<int>((kSteps - 1) / config.job.state_steps));
}

TEST_P(EverySystem, OneThatCannotBeWrittenEndsTheJobWithItsSentence) {
  for (const int rank : {0, GetParam().config.job.workers + server_nodes(GetParam().config) - 1}) {
    TrainHooks hooks;
    hooks.on_checkpoint = [&](const NodeCheckpoint& node) {
      if (node.rank == rank) throw Error(ErrorCode::kResourceExhausted, "the disk is full");
    };
    try {
      train(GetParam().config, small_data(), hooks);
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_STREQ(error.what(), "the disk is full");
    }
  }
}

NodeCheckpoint checkpoint_of(int rank, std::uint64_t step) {
  NodeCheckpoint checkpoint;
  checkpoint.rank = rank;
  checkpoint.step = step;
  return checkpoint;
}

TEST(CheckpointSaver, ANodeWaitsForItsOwnAlone) {
  Signal go_on;
  std::mutex mutex;
  std::vector<std::pair<int, std::uint64_t>> saved;
  CheckpointSaver saver(
      [&](const NodeCheckpoint& checkpoint) {
        if (checkpoint.rank == 0 && checkpoint.step == 1) {
          EXPECT_TRUE(go_on.wait());
        }
        const std::lock_guard lock(mutex);
        saved.emplace_back(checkpoint.rank, checkpoint.step);
      },
      [](const std::string& sentence) { ADD_FAILURE() << sentence; });
  saver.put(checkpoint_of(0, 1));
  saver.put(checkpoint_of(1, 1));
  saver.put(checkpoint_of(1, 2));
  saver.finish(1);
  EXPECT_EQ(saved, (std::vector<std::pair<int, std::uint64_t>>{{1, 1}, {1, 2}}));
  go_on.give();
  saver.put(checkpoint_of(0, 2));
  saver.finish(0);
  EXPECT_EQ(saved, (std::vector<std::pair<int, std::uint64_t>>{{1, 1}, {1, 2}, {0, 1}, {0, 2}}));
  saver.finish(7);  // who has saved nothing waits for nothing
  EXPECT_NO_THROW(saver.rethrow_failure());
}

TEST(CheckpointSaver, TellsOnceAndThrowsToWhoeverAsks) {
  std::vector<std::string> told;
  CheckpointSaver saver(
      [](const NodeCheckpoint& checkpoint) {
        throw Error(ErrorCode::kUnavailable, "no disk for " + std::to_string(checkpoint.rank));
      },
      [&](const std::string& sentence) { told.push_back(sentence); });
  saver.put(checkpoint_of(3, 1));
  EXPECT_THROW(saver.put(checkpoint_of(3, 2)), Error);
  saver.put(checkpoint_of(4, 2));
  EXPECT_THROW(saver.finish(4), Error);
  EXPECT_EQ(told, std::vector<std::string>{"no disk for 3"});
  EXPECT_THROW(saver.rethrow_failure(), Error);
}

TEST(Checkpoints, NeedAMultipleOfLocalSteps) {
  TrainConfig config = small_job("parameter-server", "3lc");
  config.job.local_steps = 4;
  EXPECT_THROW(train(config, small_data(), {}), Error);
}

// Not worker 0's alone: each has learned from other batches.
TEST(Checkpoints, HoldEveryWorkersOwnOptimizer) {
  TrainConfig config = small_job("parameter-server", "3lc");
  config.job.local_updates = 3;
  config.outer = "nesterov";
  Checkpoints saved(config);
  train(config, small_data(), saved.hooks());
  const auto nodes = saved.nodes_after(kBetween);
  for (const NodeCheckpoint& node : nodes) {
    EXPECT_EQ(node.arrays.contains("local-momentum/fc1.bias"), node.rank < config.job.workers);
    // The outer optimizer's, where the model is owned.
    EXPECT_EQ(node.arrays.contains("momentum/fc1.bias"), node.rank == config.job.workers);
  }
  EXPECT_NE(nodes[0].arrays.at("local-momentum/fc1.bias").values,
            nodes[1].arrays.at("local-momentum/fc1.bias").values);
}

}  // namespace
}  // namespace tersewire::trainer
