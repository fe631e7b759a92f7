// Servers that do not wait: how far ahead a worker may be, what those at one version pull, that
// nothing pushed is lost, and how such a job ends.
#include <gtest/gtest.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "exchange_test_support.h"
#include "expect_error.h"
#include "tersewire/passing_transport.h"

namespace tersewire {
namespace {

Job stale_job(int workers, int staleness, const std::string& codec = "3lc") {
  Job job = make_job(workers, 1, codec);
  job.staleness = staleness;
  return job;
}

// One tensor, one part, one message.
Job small_job(int workers, int staleness, const std::string& codec) {
  Job job = stale_job(workers, staleness, codec);
  job.tensors = {{"only", {64}, TensorKind::kDense}};
  job.policy = "";
  return job;
}

// What crossed a server's end, as it came and went.
struct Crossing {
  bool push;
  std::size_t worker;
  std::uint64_t step;
  SharedBytes bytes;
};

// A server's end that writes down pushes and pulls.
class WatchedEnd final : public PassingTransport {
 public:
  // `heard` is told of each push before the server is.
  WatchedEnd(Transport& inner, std::function<void(const Crossing&)> heard)
      : PassingTransport(inner), heard_(std::move(heard)) {}

  void send(int to, SharedBytes bytes) override {
    note(false, to, bytes);
    PassingTransport::send(to, std::move(bytes));
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    auto incoming = PassingTransport::receive(timeout);
    if (incoming) note(true, incoming->from, incoming->bytes);
    return incoming;
  }

  // By the server's thread alone, and by others after it.
  std::vector<Crossing> crossings;

 private:
  void note(bool push, int worker, const SharedBytes& bytes) {
    const Message message = parse_message(*bytes);
    const MessageKind kind = message.header.kind;
    const bool told = kind == MessageKind::kPull && !message.frames.empty();
    if (kind != MessageKind::kPush && !told) return;
    crossings.push_back({push, static_cast<std::size_t>(worker), message.header.step, bytes});
    if (push && heard_) heard_(crossings.back());
  }

  std::function<void(const Crossing&)> heard_;
};

// Where threads wait for what others have come to.
class Stage {
 public:
  void reach(std::uint64_t stage) {
    const std::lock_guard lock(mutex_);
    stage_ = std::max(stage_, stage);
    moved_.notify_all();
  }
  void wait_for(std::uint64_t stage) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(moved_.wait_for(lock, 20s, [&] { return stage_ >= stage; })) << stage;
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t stage_ = 0;
};

// As run_job() with one server, whose end is watched; `made` hears of every version, and `heard` of
// every push.
Outcome run_watched(const Job& job, const Behaviour& behaviour, std::vector<Crossing>& crossings,
                    const std::function<void(std::uint64_t)>& made = {},
                    const std::function<void(const Crossing&)>& heard = {}) {
  const auto ends = make_in_process_network(job.workers + 1);
  Outcome outcome = empty_outcome(job);
  WatchedEnd server(*ends.back(), heard);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.workers; ++rank) {
    threads.emplace_back(
        [&, rank] { run_node(job, *ends[static_cast<std::size_t>(rank)], behaviour, outcome); });
  }
  std::uint64_t versions = 0;
  const Update apply = descend(outcome.global);
  try {
    run_server(job, server,
               [&](const Part& part, std::span<const float> mean, std::span<float> delta) {
                 apply(part, mean, delta);
                 if (part.number == 0 && made) made(++versions);
               });
  } catch (const std::exception& error) {
    outcome.errors.back() = error.what();
  }
  for (std::thread& thread : threads) thread.join();
  crossings = std::move(server.crossings);
  return outcome;
}

// How far the version that is made ever gets ahead of those from which workers compute.
std::uint64_t most_ahead(const std::vector<Crossing>& crossings, std::size_t workers) {
  std::vector<std::uint64_t> version(workers, 0);
  std::vector<bool> computes(workers, true);
  std::uint64_t newest = 0;
  std::uint64_t most = 0;
  for (const Crossing& crossing : crossings) {
    if (crossing.push) {
      computes[crossing.worker] = false;
      continue;
    }
    newest = std::max(newest, crossing.step);
    version[crossing.worker] = crossing.step;
    computes[crossing.worker] = true;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      if (computes[worker]) most = std::max(most, newest - version[worker]);
    }
  }
  return most;
}

// The most workers that computed when a version was made, up to the one that ends the job.
std::size_t most_computing(const std::vector<Crossing>& crossings, std::size_t workers,
                           std::uint64_t last) {
  std::vector<bool> computes(workers, true);
  std::uint64_t newest = 0;
  std::ptrdiff_t most = 0;
  for (const Crossing& crossing : crossings) {
    if (!crossing.push && crossing.step > newest && crossing.step <= last) {
      newest = crossing.step;
      most = std::max(most, std::ranges::count(computes, true));
    }
    computes[crossing.worker] = !crossing.push;
  }
  return static_cast<std::size_t>(most);
}

// ---- How far a worker may be ahead.

class Staleness : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Bounds, Staleness, testing::Values(1, 2, 5));

TEST_P(Staleness, NobodyGetsFurtherAheadThanItAndSomebodyGetsThatFar) {
  const int staleness = GetParam();
  const auto bound = static_cast<std::uint64_t>(staleness);
  const Job job = small_job(4, staleness, "fp32");
  Stage versions;
  // The last worker computes each of its steps until the others can get no further.
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 3 && step <= 40) versions.wait_for(step - 1 + bound);
  };
  std::vector<Crossing> crossings;
  const Outcome outcome =
      run_watched(job, {.steps = 60, .before_step = slow, .gradient = {}}, crossings,
                  [&](std::uint64_t version) { versions.reach(version); });
  expect_no_errors(outcome);
  EXPECT_EQ(most_ahead(crossings, 4), bound);
}

TEST_P(Staleness, AWorkerThatWasOvertakenGoesOnWithTheLatestStep) {
  const int staleness = GetParam();
  const auto bound = static_cast<std::uint64_t>(staleness);
  const Job job = small_job(2, staleness, "fp32");
  Stage versions;
  std::mutex mutex;
  std::vector<std::uint64_t> steps;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 0) return;
    const std::lock_guard lock(mutex);
    steps.push_back(step);
    if (steps.size() == 1) versions.wait_for(bound);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = 30, .before_step = slow, .gradient = {}}, crossings,
                               [&](std::uint64_t version) { versions.reach(version); }));
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(steps[0], 1U);
  EXPECT_GT(steps[1], bound);
}

// A push for which the next version waits is in that, and brings its sender there: who takes K + 1
// times as long holds up nobody.
TEST_P(Staleness, AWorkerForWhichTheOthersWaitGetsAsFarAsThey) {
  const auto bound = static_cast<std::uint64_t>(GetParam());
  const Job job = small_job(2, GetParam(), "fp32");
  constexpr std::uint64_t kSteps = 60;
  Stage pushes;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 1 && step + bound <= kSteps) pushes.wait_for(step + bound);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = kSteps, .before_step = slow, .gradient = {}},
                               crossings, {}, [&](const Crossing& push) {
                                 if (push.worker == 0) pushes.reach(push.step);
                               }));
  std::uint64_t version = 0;
  for (const Crossing& crossing : crossings) {
    if (crossing.push || crossing.worker == 0 || crossing.step > kSteps) continue;
    if (version + 1 + bound > kSteps) break;
    EXPECT_EQ(crossing.step, version + 1 + bound);
    version = crossing.step;
  }
  EXPECT_GE(version, kSteps - 2 * bound);
}

// The others take all their steps while worker 2 is in its first.
TEST(Asynchronous, NobodyWaitsForAWorkerThatComputesForLong) {
  Job job = small_job(3, 0, "3lc");
  job.tensors = {{"only", {4000}, TensorKind::kDense}};
  job.staleness = Job::kUnbounded;
  Stage versions;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 2 && step == 1) versions.wait_for(50);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = 50, .before_step = slow, .gradient = {}}, crossings,
                               [&](std::uint64_t version) { versions.reach(version); }));
  EXPECT_EQ(most_ahead(crossings, 3), 50U);
}

// What a worker lacks is kept for it, and with fp32 that is as long as the model, version by
// version.
TEST(Asynchronous, AServerKeepsAFewModelsForTheSlowestAndThenWaits) {
  Job job = small_job(2, 0, "fp32");
  job.staleness = Job::kUnbounded;
  constexpr std::uint64_t kMost = 9;
  Stage versions;
  // Once it has pushed, what the others waited with is made, whatever it computes then.
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker != 1 || step > 20) return;
    versions.wait_for(step == 1 ? kMost : step + 1);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = 50, .before_step = slow, .gradient = {}}, crossings,
                               [&](std::uint64_t version) { versions.reach(version); }));
  EXPECT_EQ(most_ahead(crossings, 2), kMost);
}

// ---- How many a version waits for.

class StaleBackups : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Backups, StaleBackups, testing::Values(1, 2));

TEST_P(StaleBackups, AVersionWaitsForAllWorkersButThese) {
  constexpr std::uint64_t kSteps = 60;
  const auto backups = static_cast<std::size_t>(GetParam());
  Job job = small_job(5, 4, "fp32");
  job.backup_workers = GetParam();
  Stage versions;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker >= 5 - job.backup_workers && step <= 40) versions.wait_for(step + 2);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = kSteps, .before_step = slow, .gradient = {}},
                               crossings, [&](std::uint64_t version) { versions.reach(version); }));
  EXPECT_EQ(most_computing(crossings, 5, kSteps), backups);
  EXPECT_GE(most_ahead(crossings, 5), 2U);
}

TEST(StaleBackups, AllThatAreLeftMakeAVersionWhereOthersAreDone) {
  Job job = small_job(3, 3, "fp32");
  job.backup_workers = 1;
  std::vector<Crossing> crossings;
  const auto slow = [](int worker, std::uint64_t) {
    if (worker > 0) std::this_thread::sleep_for(1ms);
  };
  const Outcome outcome =
      run_watched(job, {.steps = 2, .before_step = slow, .gradient = {}}, crossings);
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(replica, outcome.global);
}

// ---- What is computed.

// Every step is one where states are saved, and so all workers meet in it.
Job meeting_in_every_step(Job job) {
  job.state_steps = 1;
  return job;
}

TEST(StaleSteps, WhereAllMeetInEveryStepItIsLockStepToTheBit) {
  for (const char* exchange : {"parameter-server", "gradient-server"}) {
    for (const std::optional<int> servers :
         {std::optional(1), std::optional(2), std::optional(Job::kColocated)}) {
      for (const char* codec : {"fp32", "3lc", "terngrad", "adacomp"}) {
        SCOPED_TRACE(std::string(exchange) + " " + std::to_string(*servers) + " " + codec);
        Job job = stale_job(3, 0, codec);
        job.exchange = exchange;
        job.servers = servers;
        const Outcome lock_step = run_job(job);
        job.staleness = 3;
        for (const int backups : {0, 1}) {
          job.backup_workers = backups;
          const Outcome stale = run_job(meeting_in_every_step(job));
          expect_no_errors(stale);
          for (std::size_t i = 0; i < 3; ++i) {
            expect_equal_bits(stale.replicas[i], lock_step.replicas[i]);
          }
          expect_equal_bits(stale.global, lock_step.global);
        }
      }
    }
  }
}

struct Variant {
  const char* exchange;
  int servers;
  int staleness;
  const char* codec;
  int backup_workers = 0;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.exchange << ' ' << variant.servers << ' ' << variant.staleness << ' '
       << variant.codec << ' ' << variant.backup_workers;
}

Job job_of(const Variant& variant, int workers) {
  Job job = stale_job(workers, variant.staleness, variant.codec);
  job.exchange = variant.exchange;
  job.servers = variant.servers;
  job.backup_workers = variant.backup_workers;
  job.bucket_bytes = 1024;  // several a server
  return job;
}

class StaleExchange : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(
    Variants, StaleExchange,
    testing::Values(
        Variant{"parameter-server", 1, 2, "3lc"}, Variant{"parameter-server", 2, 1, "3lc"},
        Variant{"parameter-server", 3, 4, "fp32"}, Variant{"parameter-server", 2, -1, "3lc"},
        Variant{"parameter-server", Job::kColocated, 2, "3lc"},
        Variant{"parameter-server", Job::kColocated, -1, "topk:fraction=0.25"},
        Variant{"gradient-server", 2, 2, "3lc"}, Variant{"gradient-server", 1, -1, "fp32"},
        Variant{"gradient-server", Job::kColocated, 3, "3lc"},
        Variant{"parameter-server", 2, 2, "3lc", 1}, Variant{"parameter-server", 3, 3, "fp32", 2},
        Variant{"parameter-server", Job::kColocated, -1, "3lc", 1},
        Variant{"gradient-server", 2, -1, "3lc", 2}));

// Slower than the others by a random share of a step, in every step.
void dawdle(int worker, std::uint64_t step) {
  if (worker == 0) std::this_thread::sleep_for(std::chrono::microseconds(300 + step * 7919 % 500));
}

TEST_P(StaleExchange, NothingPushedIsLostAndReplicasEndEqual) {
  constexpr std::uint64_t kGradientSteps = 40;
  const Job job = job_of(GetParam(), 4);
  std::mutex mutex;
  std::set<std::pair<int, std::uint64_t>> pushed;
  const auto count = [&](int worker, std::uint64_t step) {
    dawdle(worker, step);
    const std::lock_guard lock(mutex);
    if (step <= kGradientSteps) pushed.emplace(worker, step);
  };
  const auto stop_early = [](int, std::uint64_t step, std::vector<float>& values) {
    if (step > kGradientSteps) std::ranges::fill(values, 0.0F);
  };
  const Outcome outcome =
      run_job(job, {.steps = kGradientSteps + 400, .before_step = count, .gradient = stop_early});
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  EXPECT_GE(pushed.size(), kGradientSteps);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    std::vector<float> sum(job.tensors[tensor].elems(), 0.0F);
    for (const auto& [worker, step] : pushed) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] -= gradient_value(worker, step, tensor, i) / 4;
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(outcome.replicas[0][tensor][i], sum[i], 2e-4);
      if (!exchange_traits(job.exchange).workers_own_model) {
        ASSERT_NEAR(outcome.global[tensor][i], sum[i], 2e-4);
      }
    }
  }
}

// Its server has no thread of its own, and takes what it pushes when it asks for what there is.
TEST(StaleSteps, OfAWorkerAloneWithItsServerAreThoseOfLockStep) {
  Job job = stale_job(1, 0, "3lc");
  job.servers = Job::kColocated;
  const Outcome lock_step = run_job(job);
  expect_no_errors(lock_step);
  job.staleness = 2;
  const Outcome stale = run_job(job);
  expect_no_errors(stale);
  expect_equal_bits(stale.replicas[0], lock_step.replicas[0]);
}

// ---- Groups: workers at the same version.

TEST(StaleGroups, ThoseAtTheSameVersionPullTheSameBytes) {
  const Job job = small_job(6, 4, "3lc");
  const auto slow = [](int worker, std::uint64_t step) {
    if (worker >= 4) dawdle(0, step);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = 80, .before_step = slow, .gradient = {}}, crossings));
  std::vector<std::uint64_t> version(6, 0);
  std::map<std::pair<std::uint64_t, std::uint64_t>, const Bytes*> sent;
  std::size_t shared = 0;
  for (const Crossing& crossing : crossings) {
    if (crossing.push) continue;
    const auto [place, fresh] =
        sent.try_emplace({version[crossing.worker], crossing.step}, crossing.bytes.get());
    EXPECT_EQ(place->second, crossing.bytes.get());
    shared += fresh ? 0 : 1;
    version[crossing.worker] = crossing.step;
  }
  EXPECT_GT(shared, 80U);
}

// A group that was left behind pulls what the others have pulled meanwhile, byte by byte, so that
// it joins them with nothing lost and nothing left over.
TEST(StaleGroups, JoinByTheBytesThatTheOthersHavePulled) {
  const Job job = small_job(2, 3, "3lc");
  Stage versions;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 1 && step == 1) versions.wait_for(3);
  };
  std::vector<Crossing> crossings;
  expect_no_errors(run_watched(job, {.steps = 12, .before_step = slow, .gradient = {}}, crossings,
                               [&](std::uint64_t version) { versions.reach(version); }));
  std::map<std::uint64_t, Bytes> by_version;  // what worker 0 pulled first
  std::vector<Bytes> joined;
  for (const Crossing& crossing : crossings) {
    if (crossing.push) continue;
    for (const Frame& frame : parse_message(*crossing.bytes).frames) {
      const Bytes payload(frame.payload.begin(), frame.payload.end());
      if (crossing.worker == 1) {
        joined.push_back(payload);
      } else if (by_version.size() < 3) {
        by_version.emplace(crossing.step, payload);
      }
    }
    if (crossing.worker == 1) break;
  }
  ASSERT_GE(joined.size(), 3U);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    EXPECT_EQ(joined[version - 1], by_version[version]) << version;
  }
}

// ---- The end.

// Worker 0 takes three steps and is done before worker 1 pushes its first.
Outcome run_with_a_late_push(const Job& job, std::vector<Crossing>& crossings) {
  Stage versions;
  const auto slow = [&](int worker, std::uint64_t step) {
    if (worker == 1 && step == 1) versions.wait_for(3);
  };
  return run_watched(job, {.steps = 3, .before_step = slow, .gradient = {}}, crossings,
                     [&](std::uint64_t version) { versions.reach(version); });
}

void expect_three_of_one_and_part_of_the_other(const Outcome& outcome, float part) {
  expect_no_errors(outcome);
  for (std::size_t i = 0; i < 64; ++i) {
    float expected = part * gradient_value(1, 1, 0, i);
    for (std::uint64_t step = 1; step <= 3; ++step) expected += gradient_value(0, step, 0, i) / 2;
    EXPECT_NEAR(outcome.global[0][i], -expected, 1e-6);
  }
  expect_equal_bits(outcome.replicas[0], outcome.replicas[1]);
  expect_equal_bits(outcome.replicas[0], outcome.global);
}

TEST(StaleEnd, TheSlowestWorkersLastPushIsInTheModelOfAll) {
  std::vector<Crossing> crossings;
  expect_three_of_one_and_part_of_the_other(
      run_with_a_late_push(small_job(2, 5, "fp32"), crossings), 1.0F / 2);
}

TEST(StaleEnd, AWorkerThatDiesEndsTheJobWhereOthersCanGetNoFurther) {
  for (const int staleness : {2, Job::kUnbounded}) {
    const Job job = small_job(3, staleness, "3lc");
    auto ends = make_in_process_network(4);
    ends[2].reset();  // without a word
    Outcome outcome = empty_outcome(job);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1, 3}) {
      threads.emplace_back([&, rank] {
        run_node(job, *ends[static_cast<std::size_t>(rank)],
                 {.steps = 20, .before_step = {}, .gradient = {}}, outcome);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int rank : {0, 1, 3}) {
      const std::string& error = outcome.errors[static_cast<std::size_t>(rank)];
      EXPECT_NE(error.find('2'), std::string::npos) << error;
      EXPECT_NE(error.find("left"), std::string::npos) << error;
    }
  }
}

// Even where no limit of staleness is reached.
TEST(StaleEnd, MoreWorkersThatDieThanThereAreBackupsEndTheJob) {
  Job job = small_job(4, 0, "3lc");
  job.staleness = Job::kUnbounded;
  job.backup_workers = 1;
  auto ends = make_in_process_network(5);
  ends[2].reset();  // without a word
  ends[3].reset();
  Outcome outcome = empty_outcome(job);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 4}) {
    threads.emplace_back([&, rank] {
      run_node(job, *ends[static_cast<std::size_t>(rank)],
               {.steps = 20, .before_step = {}, .gradient = {}}, outcome);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 1, 4}) {
    const std::string& error = outcome.errors[static_cast<std::size_t>(rank)];
    EXPECT_NE(error.find("rank 2 has left the job"), std::string::npos) << error;
  }
}

// ---- States.

// All nodes' states after one step, and the replicas then.
struct States {
  std::uint64_t step = 16;
  std::mutex mutex;
  std::map<int, NodeState> of_rank;
  std::vector<Model> replicas;
};

void run_one(const Job& job, Transport& end, States& states, bool resume, std::uint64_t last,
             Outcome& outcome) {
  const int rank = end.rank();
  const NodeState* const from = resume ? &states.of_rank.at(rank) : nullptr;
  const auto save = [&](const NodeState& state) {
    if (state.step != states.step || resume) return;
    const std::lock_guard lock(states.mutex);
    states.of_rank[rank] = state;
  };
  if (rank >= job.workers) {
    run_server(job, end, descend(outcome.global), nullptr, from, save);
    return;
  }
  Model own;
  Model& replica = outcome.replicas[static_cast<std::size_t>(rank)];
  const auto worker =
      make_communicator(job, end, update_of(job, rank, outcome.global, own), nullptr, from);
  for (auto step = worker->begin_step(); step <= last; step = worker->begin_step()) {
    dawdle(rank, step);
    for (std::size_t i = 0; i < replica.size(); ++i) worker->pull(i, replica[i]);
    if (step == states.step + 1) {
      save(worker->state());
      if (!resume) states.replicas[static_cast<std::size_t>(rank)] = replica;
    }
    for (std::size_t i = replica.size(); i-- > 0;) {
      // Zeros drain what residuals hold, pushed and pulled.
      worker->push(
          i, resume ? std::vector<float>(replica[i].size(), 0.0F) : gradient(job, rank, step, i));
    }
  }
  worker->finish(spans(replica));
}

Outcome run_states(const Job& job, States& states, bool resume, std::uint64_t last) {
  Outcome outcome = empty_outcome(job);
  if (resume) outcome.replicas = states.replicas;
  states.replicas.resize(outcome.replicas.size());
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    threads.emplace_back([&] {
      try {
        run_one(job, *end, states, resume, last, outcome);
      } catch (const std::exception& error) {
        outcome.errors[static_cast<std::size_t>(end->rank())] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

class StaleStates : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Servers, StaleStates, testing::Values(1, 2, Job::kColocated));

TEST_P(StaleStates, OfAStepWhereAllMeetAreWholeAndTheJobGoesOnFromThem) {
  Job job = stale_job(3, 3, "3lc");
  job.servers = GetParam();
  job.bucket_bytes = 1024;
  job.state_steps = 8;
  States states;
  expect_no_errors(run_states(job, states, false, 30));
  ASSERT_EQ(states.of_rank.size(), static_cast<std::size_t>(3 + server_nodes(job)));
  for (const auto& [rank, state] : states.of_rank) EXPECT_EQ(state.step, states.step) << rank;
  for (const Model& replica : states.replicas) expect_equal_bits(states.replicas[0], replica);
  // What the job owes every replica: its pulled residuals, and the mean of those that are pushed.
  Model owed = states.replicas[0];
  for (const auto& [rank, state] : states.of_rank) {
    for (const Part& part : job_parts(job)) {
      float* const values = owed[part.tensor].data() + part.begin;
      const auto add = [&](const std::vector<float>& residual, float weight) {
        for (std::size_t i = 0; i < residual.size(); ++i) values[i] += weight * residual[i];
      };
      add(state.pulled[part.number], 1);
      add(state.pushed[part.number], -1.0F / 3);
    }
  }
  const Outcome resumed = run_states(job, states, true, 400);
  expect_no_errors(resumed);
  for (std::size_t tensor = 0; tensor < owed.size(); ++tensor) {
    for (std::size_t i = 0; i < owed[tensor].size(); ++i) {
      ASSERT_NEAR(resumed.replicas[0][tensor][i], owed[tensor][i], 2e-4);
    }
  }
}

// ---- What is refused.

TEST(StaleJobs, AreRefusedWhereTheyMakeNoSense) {
  const auto refused = [](const std::function<void(Job&)>& change, const std::string& why) {
    Job job = stale_job(3, 2);
    change(job);
    expect_error(ErrorCode::kInvalidArgument, why, [&] { server_nodes(job); });
  };
  refused([](Job& job) { job.staleness = -2; }, "use 1 or more");
  refused([](Job& job) { job.backup_workers = 3; }, "cannot be backups");
  refused([](Job& job) { job.local_updates = 4; }, "local updates");
  refused([](Job& job) { job.raw_from_all = true; }, "raw from all");
  for (const char* exchange :
       {"aggregator-tree", "all-gather", "ring", "weight-average",
        "weight-average:mode=asynchronous", "hierarchical-ring:top=tree,group=3"}) {
    refused(
        [&](Job& job) {
          job.exchange = exchange;
          job.servers.reset();
          job.push_codec = job.pull_codec = "fp32";
        },
        "has no servers that let workers go ahead");
  }
  refused(
      [](Job& job) {
        job.exchange = "gradient-server:scaler-sharing=on";
        job.push_codec = "terngrad";
      },
      "has no servers that let workers go ahead");
}

TEST(StaleJobs, HaveNoMeanOfAStep) {
  Job job = small_job(1, 2, "fp32");
  job.exchange = "gradient-server";
  const auto ends = make_in_process_network(2);
  Model own = zeros(job);
  const auto worker = make_communicator(job, *ends[0], descend(own));
  worker->begin_step();
  worker->pull(0, own[0]);
  worker->push(0, own[0]);
  expect_error(ErrorCode::kFailedPrecondition, "no mean gradient of a step",
               [&] { worker->mean(0, own[0]); });
}

}  // namespace
}  // namespace tersewire
