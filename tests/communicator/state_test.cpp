// What a restart would lose: saved, resumed from, and spread over other numbers of nodes.
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "exchange_suite.h"
#include "expect_error.h"

namespace tersewire {
namespace {

// All nodes after the same step.
struct Cut {
  std::vector<NodeState> states;  // by rank
  std::vector<Model> replicas;    // by worker
};
using Cuts = std::map<std::uint64_t, Cut>;  // by step

struct RunResult {
  Cuts cuts;
  std::vector<Model> replicas;      // when all have finished
  std::vector<std::string> errors;  // by rank, empty where it ended well
};

// Without a memory of its own, so that nothing but the library's state is to be resumed.
void descend_once(const Part& /*part*/, std::span<const float> mean, std::span<float> delta) {
  std::ranges::transform(mean, delta.begin(), [](float value) { return -value; });
}

Update stateless_update(const Job& job, int rank) {
  return needs_update(job, rank) ? Update(descend_once) : Update();
}

const NodeState* state_of(const Cut* from, std::size_t rank) {
  return from == nullptr ? nullptr : &from->states[rank];
}

void work(const Job& job, Transport& end, const Cut* from, std::uint64_t last_step,
          RunResult& run) {
  const auto rank = static_cast<std::size_t>(end.rank());
  Model& replica = run.replicas[rank];
  replica = from == nullptr ? zeros(job) : from->replicas[rank];
  const auto communicator =
      make_communicator(job, end, stateless_update(job, end.rank()), nullptr, state_of(from, rank));
  std::uint64_t step = 0;
  do {
    step = communicator->begin_step();
    for (std::size_t i = 0; i < replica.size(); ++i) communicator->pull(i, replica[i]);
    if (const auto cut = run.cuts.find(step - 1); cut != run.cuts.end()) {
      cut->second.states[rank] = communicator->state();
      cut->second.replicas[rank] = replica;
    }
    // As an application that saves first does.
    for (std::size_t i = 0; i < replica.size(); ++i) communicator->pull(i, replica[i]);
    for (std::size_t i = replica.size(); i-- > 0 && step <= last_step;) {
      std::vector<float> pushed = gradient(job, end.rank(), step, i);
      if (job.local_updates > 0) {
        std::ranges::transform(replica[i], pushed, pushed.begin(), std::minus<>());
        replica[i] = pushed;
      }
      communicator->push(i, pushed);
    }
  } while (step <= last_step);
  communicator->finish(spans(replica));
}

void serve(const Job& job, Transport& end, const Cut* from, RunResult& run) {
  const auto rank = static_cast<std::size_t>(end.rank());
  const auto rounds = [&](std::uint64_t step) { return step / job.steps_a_round(); };
  std::uint64_t saved = from == nullptr ? 0 : from->states[rank].step;
  run_server(job, end, stateless_update(job, end.rank()), nullptr, state_of(from, rank),
             [&](const NodeState& state) {
               EXPECT_EQ(state.step, saved += job.state_steps) << "once in so many steps";
               for (auto& [step, cut] : run.cuts) {
                 if (rounds(step) == rounds(state.step)) cut.states[rank] = state;
               }
             });
}

// From the first step or a cut, and cuts after these steps.
RunResult run_until(std::uint64_t last_step, const Job& job, const std::vector<std::uint64_t>& cuts,
                    const Cut* from = nullptr) {
  const auto nodes = static_cast<std::size_t>(job.workers + server_nodes(job));
  const auto workers = static_cast<std::size_t>(job.workers);
  RunResult run;
  run.replicas.resize(workers);
  run.errors.resize(nodes);
  for (const std::uint64_t step : cuts) {
    run.cuts[step] = {std::vector<NodeState>(nodes), std::vector<Model>(workers)};
  }
  const auto ends = make_in_process_network(static_cast<int>(nodes));
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    threads.emplace_back([&, &error = run.errors[static_cast<std::size_t>(end->rank())]] {
      try {
        if (end->rank() < job.workers) {
          work(job, *end, from, last_step, run);
        } else {
          serve(job, *end, from, run);
        }
      } catch (const std::exception& caught) {
        error = caught.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return run;
}

void expect_no_errors(const RunResult& run) {
  for (const std::string& error : run.errors) EXPECT_EQ(error, "");
}

void expect_equal_states(const std::vector<NodeState>& a, const std::vector<NodeState>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    EXPECT_EQ(a[rank].step, b[rank].step);
    EXPECT_EQ(a[rank].rank, b[rank].rank);
    EXPECT_EQ(a[rank].workers, b[rank].workers);
    EXPECT_EQ(a[rank].servers, b[rank].servers);
    expect_equal_bits(a[rank].pushed, b[rank].pushed);
    expect_equal_bits(a[rank].pulled, b[rank].pulled);
    expect_equal_bits(a[rank].accumulated, b[rank].accumulated);
    expect_equal_bits(a[rank].shared, b[rank].shared);
    expect_equal_bits(a[rank].followed, b[rank].followed);
  }
}

void expect_owners(const Job& job, const std::vector<NodeState>& states) {
  ASSERT_EQ(std::ssize(states), job.workers + server_nodes(job));
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    EXPECT_EQ(states[rank].rank, static_cast<int>(rank));
    EXPECT_EQ(states[rank].workers, job.workers);
    EXPECT_EQ(states[rank].servers, server_nodes(job));
  }
}

// States that hold nothing yet, by hand.
std::vector<NodeState> bare_states(const Job& job, std::uint64_t step) {
  const Model nothing(job_parts(job).size());
  std::vector<NodeState> states;
  for (int rank = 0; rank < job.workers + server_nodes(job); ++rank) {
    states.push_back({.step = step,
                      .rank = rank,
                      .workers = job.workers,
                      .servers = server_nodes(job),
                      .pushed = nothing,
                      .pulled = nothing,
                      .accumulated = nothing,
                      .shared = nothing,
                      .followed = nothing});
  }
  return states;
}

// An uninterrupted run, one that saves its state at `cut`, and one that resumes there.
void expect_resumed_equals_uninterrupted(const Job& job, std::uint64_t cut, std::uint64_t last) {
  Job silent = job;
  silent.state_steps = 0;
  const RunResult uninterrupted = run_until(last, silent, {});
  const RunResult saving = run_until(last, job, {cut, last});
  const RunResult resumed = run_until(last, job, {last}, &saving.cuts.at(cut));
  expect_no_errors(uninterrupted);
  expect_no_errors(saving);
  expect_no_errors(resumed);
  for (std::size_t worker = 0; worker < uninterrupted.replicas.size(); ++worker) {
    expect_equal_bits(uninterrupted.replicas[worker], saving.replicas[worker]);
    expect_equal_bits(uninterrupted.replicas[worker], resumed.replicas[worker]);
  }
  expect_equal_states(saving.cuts.at(last).states, resumed.cuts.at(last).states);
}

bool holds_something(const NodeState& state) {
  const auto is_something = [](const std::vector<float>& values) {
    return std::ranges::any_of(values, [](float value) { return value != 0; });
  };
  return std::ranges::any_of(state.pushed, is_something) ||
         std::ranges::any_of(state.pulled, is_something);
}

// ---- Every exchange, with codecs that keep a residual and codecs that do not.

struct StateCodec {
  const char* text;
  std::vector<Sends> fits;
  bool residual;
};

const std::vector<StateCodec> kStateCodecs{
    {"fp32", kAll, false},
    {"terngrad", {Sends::kGradients, Sends::kTernary}, false},
    {"qsgd:levels=127", kNoWeights, false},
    {"3lc", kGradientsAlone, true},
    {"3lc:mode=paper", kGradientsAlone, true},
    {"adacomp:bin=9", kGradientsAlone, true},
    {"int8:ef=on", kAll, true},
    {"oland-raj:bits=8,ef=on", kNoSums, true},
    {"oland-raj:bits-from=gradient,ef=on", {Sends::kWeights}, true},
    {"inceptionn:ef=on", kAll, true},
};

class EveryExchange : public testing::TestWithParam<TestedExchange> {
 protected:
  // Jobs of this exchange with each codec that fits it.
  template <typename Task>
  static void with_jobs(const std::vector<int>& workers, const Task& task) {
    for (const StateCodec& codec : kStateCodecs) {
      if (std::ranges::find(codec.fits, GetParam().sends) == codec.fits.end()) continue;
      for (const int count : workers) {
        if (count % GetParam().workers_divide_by != 0) continue;
        SCOPED_TRACE(testing::Message() << codec.text << ", " << count << " workers");
        Job job = suite_job(GetParam(), codec.text, count);
        job.checksum_steps = 1;
        job.state_steps = 1;
        task(job, codec);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, EveryExchange, testing::ValuesIn(kTestedExchanges), exchange_name);

TEST_P(EveryExchange, AResumedRunEqualsAnUninterruptedOne) {
  with_jobs({1, 2, 3, 4, 5}, [](Job job, const StateCodec&) {
    job.state_steps = 3;
    expect_resumed_equals_uninterrupted(job, 3, 6);
  });
}

TEST_P(EveryExchange, LocalStepsGoOnWhereTheyWere) {
  with_jobs({2, 4}, [](Job job, const StateCodec&) {
    job.state_steps = 3;
    job.local_steps = 3;
    for (const std::uint64_t cut : {3, 4, 5}) expect_resumed_equals_uninterrupted(job, cut, 8);
  });
}

TEST_P(EveryExchange, LocalUpdatesGoOnAfterARound) {
  if (GetParam().sends == Sends::kWeights) return;
  with_jobs({2, 4}, [](Job job, const StateCodec&) {
    job.state_steps = 3;
    job.local_updates = 3;
    expect_resumed_equals_uninterrupted(job, 3, 6);
  });
}

// Rounds of one step, then of four: step 8 is exchange 5, and more than 7 are not decided on.
TEST_P(EveryExchange, RoundsThatBecomeLongerGoOnAfterAState) {
  if (GetParam().sends != Sends::kGradients && GetParam().sends != Sends::kSums) return;
  const std::string codec = GetParam().sends == Sends::kSums ? "int8:ef=on" : "3lc";
  Job job = suite_job(GetParam(), codec, 4);
  job.state_steps = job.local_updates = 4;
  job.ladder = std::make_shared<CodecLadder>(
      CodecLadder{.codecs = {codec, codec},
                  .rung = [](std::uint64_t exchange) { return exchange <= 4 ? 0 : 1; },
                  .steps = {1, 4},
                  .last_step =
                      [](std::uint64_t exchange) {
                        if (exchange > 7) {
                          throw Error(ErrorCode::kFailedPrecondition,
                                      "nothing is decided on " + std::to_string(exchange));
                        }
                        return exchange <= 4 ? exchange : 4 + (exchange - 4) * 4;
                      }});
  for (const std::uint64_t cut : {4, 8}) expect_resumed_equals_uninterrupted(job, cut, 12);
}

// In each of these the last fragment's result is still to be taken when the state is.
TEST_P(EveryExchange, FragmentsGoOnAfterARound) {
  if (GetParam().sends == Sends::kWeights) return;
  with_jobs({2, 4}, [](Job job, const StateCodec& /*codec*/) {
    job.state_steps = job.local_updates = 4;
    job.delay = 1;
    job.fragments = job.exchange.ends_with("scaler-sharing=on") ? 1 : 2;
    expect_resumed_equals_uninterrupted(job, 4, 8);
    job.delay = 0;
    expect_resumed_equals_uninterrupted(job, 4, 8);
  });
}

TEST_P(EveryExchange, AStateHoldsWhatCodecsKeep) {
  with_jobs({4}, [](const Job& job, const StateCodec& codec) {
    const RunResult run = run_until(2, job, {2});
    expect_no_errors(run);
    expect_owners(job, run.cuts.at(2).states);
    for (const NodeState& state : run.cuts.at(2).states) {
      EXPECT_EQ(state.step, 2);
      EXPECT_EQ(holds_something(state), codec.residual);
    }
  });
}

TEST(HierarchicalRing, ResumesWithBlocksOfSeveralPieces) {
  for (const char* top : {"ring", "tree"}) {
    for (const char* codec : {"int8:ef=on", "qsgd:levels=127"}) {
      Job job = suite_job(kTestedExchanges[8], codec, 6);
      job.exchange = "hierarchical-ring:group=3,top=" + std::string(top);
      job.state_steps = 2;
      expect_resumed_equals_uninterrupted(job, 2, 4);
    }
  }
}

// Exchanges that follow what workers push (ef=21).
const std::vector<TestedExchange> kFollowing{kTestedExchanges[0], kTestedExchanges[1],
                                             kTestedExchanges[2], kTestedExchanges[6],
                                             kTestedExchanges[10]};

TEST(Followed, GoesOnAfterAState) {
  for (const TestedExchange& exchange : kFollowing) {
    for (const int workers : {1, 3}) {
      SCOPED_TRACE(testing::Message() << exchange.text << ", " << workers << " workers");
      Job job = suite_job(exchange, "3lc:ef=21", workers);
      job.state_steps = 3;
      expect_resumed_equals_uninterrupted(job, 3, 6);
      const RunResult run = run_until(3, job, {3});
      const auto holds = [](const NodeState& state) {
        return std::ranges::any_of(state.followed, [](const auto& values) {
          return std::ranges::any_of(values, [](float value) { return value != 0; });
        });
      };
      EXPECT_TRUE(std::ranges::any_of(run.cuts.at(3).states, holds));
    }
  }
}

// Workers owe nothing.
TEST(Followed, BeginsAnewWithOthers) {
  for (const TestedExchange& exchange : kFollowing) {
    for (const auto& [codec, other] :
         {std::pair{"3lc:ef=21", "3lc:ef=21"}, {"3lc:ef=21", "3lc"}, {"3lc", "3lc:ef=21"}}) {
      SCOPED_TRACE(testing::Message() << exchange.text << ", " << codec << " to " << other);
      Job from = suite_job(exchange, codec, 3);
      from.checksum_steps = 1;
      from.state_steps = 1;
      Job to = from;
      to.workers = 2;
      to.push_codec = to.pull_codec = other;
      const RunResult run = run_until(3, from, {3});
      expect_no_errors(run);
      Cut cut{redistribute(run.cuts.at(3).states, from, to), {}};
      for (const NodeState& state : cut.states) {
        for (const auto* list : {&state.pushed, &state.followed}) {
          for (const auto& values : *list) {
            for (const float value : values) ASSERT_EQ(value, 0.0F);
          }
        }
      }
      cut.replicas.assign(2, run.cuts.at(3).replicas[0]);
      const RunResult resumed = run_until(7, to, {}, &cut);
      expect_no_errors(resumed);
      expect_equal_bits(resumed.replicas[0], resumed.replicas[1]);
    }
  }
}

// Minus what was sent so far is nothing that is owed.
TEST(Followed, IsRefusedWithAnotherCodec) {
  for (const TestedExchange& exchange : kFollowing) {
    Job job = suite_job(exchange, "3lc:ef=21", 2);
    job.state_steps = 3;
    const RunResult run = run_until(3, job, {3});
    job.push_codec = job.pull_codec = "3lc";
    const RunResult resumed = run_until(6, job, {}, &run.cuts.at(3));
    EXPECT_TRUE(std::ranges::any_of(resumed.errors, [](const std::string& error) {
      return error.find("whose codec sends no differences") != std::string::npos;
    })) << exchange.text;
  }
}

// ---- Other numbers of workers and servers.

struct Sums {
  std::vector<std::vector<double>> pushed;
  std::vector<std::vector<double>> pulled;
  std::vector<std::vector<double>> accumulated;
};

void add(const Model& values, double weight, std::vector<std::vector<double>>& sums) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i].resize(std::max(sums[i].size(), values[i].size()));
    for (std::size_t j = 0; j < values[i].size(); ++j) sums[i][j] += weight * values[i][j];
  }
}

// The workers below each node of a tree; 1 elsewhere.
int workers_below(const Job& job, std::size_t rank) {
  const auto workers = static_cast<std::size_t>(job.workers);
  if (rank < workers || !job.exchange.starts_with("aggregator-tree")) return 1;
  constexpr std::size_t kFanIn = 2;
  std::size_t level = workers;  // nodes of it
  std::size_t first = 0;
  std::size_t width = 1;  // workers below each
  while (first + level <= rank) {
    first += level;
    level = (level + kFanIn - 1) / kFanIn;
    width *= kFanIn;
  }
  return static_cast<int>(std::min(width, workers - (rank - first) * width));
}

Sums sums_of(const Job& job, const std::vector<NodeState>& states) {
  const std::size_t tensors = job.tensors.size();
  Sums sums;
  sums.pushed.resize(tensors);
  sums.pulled.resize(tensors);
  sums.accumulated.resize(tensors);
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    add(states[rank].pushed, workers_below(job, rank), sums.pushed);
    add(states[rank].pulled, 1, sums.pulled);
    add(states[rank].accumulated, 1, sums.accumulated);
  }
  return sums;
}

void expect_same(const std::vector<std::vector<double>>& before,
                 const std::vector<std::vector<double>>& after) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(before[i].size(), after[i].size()) << "tensor " << i;
    for (std::size_t j = 0; j < before[i].size(); ++j) {
      ASSERT_NEAR(before[i][j], after[i][j], 1e-5) << "tensor " << i;
    }
  }
}

// The states of `from` after a step go on as states of `to`.
void expect_sums_are_kept(const Job& from, const Job& to, std::uint64_t step) {
  const RunResult run = run_until(step, from, {step});
  expect_no_errors(run);
  const Cut& cut = run.cuts.at(step);
  Cut other{redistribute(cut.states, from, to), {}};
  expect_owners(to, other.states);
  const Sums before = sums_of(from, cut.states);
  const Sums after = sums_of(to, other.states);
  expect_same(before.pushed, after.pushed);
  expect_same(before.pulled, after.pulled);
  expect_same(before.accumulated, after.accumulated);
  other.replicas.assign(static_cast<std::size_t>(to.workers), cut.replicas[0]);
  const RunResult resumed = run_until(step + 4, to, {}, &other);
  expect_no_errors(resumed);
  for (const Model& replica : resumed.replicas) expect_equal_bits(resumed.replicas[0], replica);
}

struct Change {
  int from;
  int to;
};
constexpr std::array kChanges{Change{4, 2}, Change{2, 3}, Change{3, 3}, Change{2, 4}, Change{5, 1}};

TEST_P(EveryExchange, OtherWorkersTakeOverTheSum) {
  for (const Change change : kChanges) {
    if (change.to % GetParam().workers_divide_by != 0) continue;
    with_jobs({change.from}, [&](const Job& from, const StateCodec&) {
      SCOPED_TRACE(testing::Message() << "to " << change.to << " workers");
      Job to = from;
      to.workers = change.to;
      expect_sums_are_kept(from, to, 2);
    });
  }
}

TEST_P(EveryExchange, OtherWorkersTakeOverWhatWasAccumulated) {
  with_jobs({4}, [](Job from, const StateCodec&) {
    from.state_steps = 3;
    from.local_steps = 3;
    Job to = from;
    to.workers = 2;
    expect_sums_are_kept(from, to, 5);
  });
}

TEST_P(EveryExchange, OtherServersTakeOverTheSum) {
  if (!GetParam().servers) return;
  for (const int servers : {1, 2, 3, Job::kColocated}) {
    with_jobs({4}, [&](const Job& from, const StateCodec&) {
      Job to = from;
      to.servers = servers;
      if (from.exchange.starts_with("hierarchical") && servers != 1 && servers != 2) return;
      SCOPED_TRACE(testing::Message() << "to " << servers << " servers");
      expect_sums_are_kept(from, to, 2);
    });
  }
}

TEST_P(EveryExchange, TensorsMayHaveCodecsWithAndWithoutAResidual) {
  with_jobs({4}, [](Job job, const StateCodec& codec) {
    if (!codec.residual) return;
    job.policy = "size<20:fp32";
    expect_resumed_equals_uninterrupted(job, 2, 4);
    const RunResult run = run_until(2, job, {2});
    EXPECT_TRUE(run.cuts.at(2).states[0].pushed[1].empty());
    EXPECT_EQ(run.cuts.at(2).states[0].pushed[2].size(), 31);
    expect_sums_are_kept(job, job, 2);
  });
}

TEST(Redistribute, SumsToTheBitWhereFloatsHoldThem) {
  const Job from = suite_job(kTestedExchanges[5], "int8:ef=on", 3);  // a tree
  Job to = from;
  to.workers = 2;
  // Workers 0 to 2, aggregators 3 (of 0 and 1) and 4 (of 2), root 5.
  std::vector<NodeState> states = bare_states(from, 7);
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const auto value = static_cast<float>(1 << rank);
    Model model = zeros(from);
    for (auto& values : model) std::ranges::fill(values, value);
    (rank < 5 ? states[rank].pushed : states[rank].pulled) = model;
  }
  const auto spread = redistribute(states, from, to);
  ASSERT_EQ(spread.size(), 3);
  expect_owners(to, spread);
  for (const NodeState& state : spread) EXPECT_EQ(state.step, 7);
  EXPECT_EQ(spread[0].pushed[0][0], (1 + 8) + (4 + 16));  // workers 0 and 2
  EXPECT_EQ(spread[1].pushed[0][0], 2 + 8);
  EXPECT_TRUE(spread[0].pulled[0].empty());
  EXPECT_TRUE(spread[2].pushed[0].empty());
  EXPECT_EQ(spread[2].pulled[2][30], 32);
}

// Of a worker that has died nothing is left, and its server's results are 0.
TEST(Redistribute, GoesOnWithoutWhatWasLost) {
  Job from = suite_job(kTestedExchanges[0], "int8:ef=on", 3);
  from.exchange = "gradient-server";
  from.servers = Job::kColocated;
  Job to = from;
  to.workers = 2;
  const std::vector<int> owners = part_servers(from);
  std::vector<NodeState> states = bare_states(from, 7);
  for (const Part& part : job_parts(from)) {
    for (std::size_t rank = 0; rank < 2; ++rank) {  // the last is lost
      states[rank].pushed[part.number].assign(part.elems, static_cast<float>(rank + 1));
      if (owners[part.number] != static_cast<int>(rank)) continue;
      states[rank].pulled[part.number].assign(part.elems, 8.0F);
    }
  }
  const auto spread = redistribute(states, from, to);
  ASSERT_EQ(spread.size(), 2);
  double kept = 0;
  double sent = 0;
  const std::vector<int> heirs = part_servers(to);
  for (const Part& part : job_parts(to)) {
    EXPECT_EQ(spread[0].pushed[part.number], std::vector<float>(part.elems, 1.0F));
    EXPECT_EQ(spread[1].pushed[part.number], std::vector<float>(part.elems, 2.0F));
    const auto& results = spread[static_cast<std::size_t>(heirs[part.number])].pulled[part.number];
    ASSERT_EQ(results.size(), part.elems);  // as its encoder asks for
    kept += std::accumulate(results.begin(), results.end(), 0.0);
  }
  for (const NodeState& state : states) {
    for (const auto& values : state.pulled) {
      sent += std::accumulate(values.begin(), values.end(), 0.0);
    }
  }
  EXPECT_EQ(kept, sent);
}

// ---- What is refused.

// What an Error says that `task` throws, and its code.
template <typename Task>
std::pair<ErrorCode, std::string> error_of(const Task& task) {
  try {
    task();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kInternal, "nothing was thrown"};
}

TEST(Redistribute, RefusesStatesOfAnotherJob) {
  const Job from = suite_job(kTestedExchanges[0], "3lc", 2);
  const RunResult run = [&] {
    Job saving = from;
    saving.state_steps = 1;
    return run_until(1, saving, {1});
  }();
  const std::vector<NodeState>& states = run.cuts.at(1).states;
  const auto expect_refused = [&](const std::string& part, const Job& to) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { redistribute(states, from, to); });
  };
  Job to = from;
  to.exchange = "gradient-server";
  expect_refused("use the same exchange", to);
  to = from;
  to.local_steps = 2;
  expect_refused("use as many", to);
  to = from;
  to.tensors[1].shape = {8};
  expect_refused("other tensors", to);
  to = from;
  to.tensors.pop_back();
  expect_refused("other tensors", to);
  expect_error(ErrorCode::kInvalidArgument, "a job of 4 nodes",
               [&] { redistribute(std::span(states).first(3), from, from); });
  expect_error(ErrorCode::kInvalidArgument, "a job of 4 nodes",
               [&] { redistribute({}, from, from); });
  auto mixed = states;
  mixed[3].step = 2;
  expect_error(ErrorCode::kInvalidArgument, "rank 3 is of step 2",
               [&] { redistribute(mixed, from, from); });
  mixed = states;
  mixed[3].pushed = mixed[0].pushed;
  expect_error(ErrorCode::kInvalidArgument, "'pushed' of tensor 'first.weight'",
               [&] { redistribute(mixed, from, from); });
}

// With as many values, but another node's.

constexpr const char* kOwnState = "give every node its own state";

std::vector<Job> jobs_of_four() {
  std::vector<Job> jobs;
  for (const auto& [exchange, codec] : {std::pair{"all-gather", "3lc:ef=21"},
                                        {"all-gather", "3lc"},
                                        {"gradient-server", "3lc:ef=21"},
                                        {"parameter-server", "3lc"},
                                        {"aggregator-tree:fan-in=2", "3lc"},
                                        {"ring", "int8:ef=on"}}) {
    Job job = suite_job(kTestedExchanges[0], codec, 4);
    job.exchange = exchange;
    job.servers.reset();
    job.state_steps = 2;
    job.progress_limit = 5s;
    jobs.push_back(job);
  }
  jobs.push_back(jobs[2]);
  jobs.back().servers = Job::kColocated;
  return jobs;
}

// Every node of the job ends with a sentence on whose states these are.
void expect_foreign(const Job& job, const Cut& cut, const std::string& whose) {
  const RunResult run = run_until(4, job, {}, &cut);
  for (const std::string& error : run.errors) {
    EXPECT_NE(error.find(whose), std::string::npos) << error;
    EXPECT_NE(error.find(kOwnState), std::string::npos) << error;
  }
}

TEST(ForeignState, OfAnotherRankIsRefused) {
  for (const Job& job : jobs_of_four()) {
    SCOPED_TRACE(job.exchange + " " + job.push_codec);
    Cut cut = run_until(2, job, {2}).cuts.at(2);
    std::swap(cut.states[0], cut.states[1]);
    expect_foreign(job, cut, "of 4 workers");
    expect_error(ErrorCode::kInvalidArgument, kOwnState,
                 [&] { static_cast<void>(redistribute(cut.states, job, job)); });
  }
}

TEST(ForeignState, OfAnotherNumberOfWorkersIsRefused) {
  for (const Job& job : jobs_of_four()) {
    SCOPED_TRACE(job.exchange + " " + job.push_codec);
    Cut cut = run_until(2, job, {2}).cuts.at(2);
    Job smaller = job;
    smaller.workers = 3;
    Cut all{redistribute(cut.states, job, smaller), {}};
    expect_owners(smaller, all.states);
    all.replicas.assign(3, cut.replicas[0]);
    expect_no_errors(run_until(4, smaller, {}, &all));
    cut.states.erase(cut.states.begin() + 3);
    cut.states.resize(all.states.size(), cut.states.back());
    expect_foreign(smaller, cut, "of 4 workers");
    expect_error(ErrorCode::kInvalidArgument, kOwnState,
                 [&] { static_cast<void>(redistribute(cut.states, smaller, smaller)); });
  }
}

// Servers above a ring's groups share every part: a state of one of two has zeros for the other.
TEST(ForeignState, OfAnotherNumberOfServersIsRefused) {
  Job job = suite_job(kTestedExchanges[0], "int8:ef=on", 4);
  job.exchange = "hierarchical-ring:group=2,top=tree";
  job.servers = 2;
  job.state_steps = 2;
  job.progress_limit = 5s;
  Cut cut = run_until(2, job, {2}).cuts.at(2);
  expect_owners(job, cut.states);
  Cut swapped = cut;
  std::swap(swapped.states[4], swapped.states[5]);
  expect_foreign(job, swapped, "of 4 workers and 2 server nodes");
  job.servers = 1;
  cut.states.pop_back();
  expect_foreign(job, cut, "of 4 workers and 2 server nodes");
}

TEST(ForeignState, OfNobodyIsRefused) {
  const Job job = suite_job(kTestedExchanges[6], "fp32", 1);
  NodeState state = bare_states(job, 3)[0];
  state.rank = NodeState().rank;
  const auto ends = make_in_process_network(1);
  expect_error(ErrorCode::kInvalidArgument, "does not say of which node",
               [&] { make_communicator(job, *ends[0], descend_once, nullptr, &state); });
}

class BadState : public testing::Test {
 protected:
  // A job of two workers and, from rank 2 on, two servers; and its states.
  static Job saving_job(std::optional<int> servers = 2) {
    Job job = suite_job(kTestedExchanges[0], "3lc", 2);
    job.servers = servers;
    job.state_steps = 2;
    job.progress_limit = 5s;
    return job;
  }
  using Spoil = std::function<void(NodeState&)>;

  // The first is a worker's, with or without a server; the last a server's, where there is one.
  static void expect_refused(const Job& job, std::size_t rank, std::uint64_t step,
                             const std::string& part, const Spoil& spoil) {
    SCOPED_TRACE(part);
    Cut cut = run_until(step, job, {step}).cuts.at(step);
    spoil(cut.states[rank]);
    const RunResult run = run_until(step + 1, job, {}, &cut);
    for (const std::string& error : run.errors) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  }
};

TEST_F(BadState, IsRefusedOnWorkersAndServers) {
  const Job job = saving_job();
  const float nan = std::nanf("");
  const auto on_both = [&](const std::string& part,
                           const std::function<void(TensorInfo, Model&)>& spoil) {
    for (const std::size_t rank : {0, 2}) {
      expect_refused(job, rank, 2, part, [&](NodeState& state) {
        Model& own = rank == 0 ? state.pushed : state.pulled;
        spoil(job.tensors[0], own);
      });
    }
  };
  // The largest tensor is server 2's.
  on_both("for 2 parts of tensors, and the job has 3",
          [](const auto&, Model& own) { own.pop_back(); });
  on_both("for 0 parts of tensors, and the job has 3",
          [](const auto&, Model& own) { own.clear(); });
  on_both("has 64 values, not 65", [](const auto&, Model& own) { own[0].pop_back(); });
  on_both("holds a NaN", [&](const auto&, Model& own) { own[0][3] = nan; });
  on_both("has no residual of tensor 'first.weight'",
          [](const auto&, Model& own) { own[0].clear(); });
}

TEST_F(BadState, OfAnotherNodeIsRefused) {
  const Job job = saving_job();
  expect_refused(job, 0, 2, "rank 0: it has 'pulled' of tensor 'last.weight'",
                 [](NodeState& state) { state.pulled[2].resize(31); });
  expect_refused(job, 3, 2, "rank 3: it has 'pushed' of tensor 'last.weight'",
                 [](NodeState& state) { state.pushed[2].resize(31); });
  expect_refused(job, 3, 2, "tensor 'first.weight' that no codec of this node keeps",
                 [](NodeState& state) { state.pulled[0].resize(65); });
  expect_refused(job, 1, 2, "no job can reach step",
                 [](NodeState& state) { state.step = ~std::uint64_t{0}; });
}

TEST_F(BadState, OfAColocatedNodeIsRefused) {
  const Job job = saving_job(Job::kColocated);
  expect_refused(job, 0, 2, "has no residual of tensor 'first.weight'",
                 [](NodeState& state) { state.pulled[0].clear(); });
  expect_refused(job, 1, 2, "tensor 'first.weight' that no codec of this node keeps",
                 [](NodeState& state) { state.pulled[0].resize(65); });
  expect_refused(job, 1, 2, "has no residual of tensor 'last.weight'",
                 [](NodeState& state) { state.pushed[2].clear(); });
}

TEST_F(BadState, OfAnotherCodecIsRefused) {
  const Job job = saving_job();
  const Cut cut = run_until(2, job, {2}).cuts.at(2);
  Job other = job;
  other.push_codec = other.pull_codec = "fp32";
  for (const std::string& error : run_until(3, other, {}, &cut).errors) {
    EXPECT_NE(error.find("that no codec of this node keeps"), std::string::npos) << error;
  }
}

TEST_F(BadState, WithinARoundOfLocalStepsIsRefused) {
  Job job = saving_job();
  job.local_steps = 2;
  const auto drop = [](NodeState& state) { state.accumulated[1].clear(); };
  const auto add = [](NodeState& state) { state.accumulated[1].resize(7); };
  expect_refused(job, 1, 3, "lacks 'accumulated' of tensor 'first.bias'", drop);
  expect_refused(job, 1, 2, "it has 'accumulated' of tensor 'first.bias'", add);
  expect_refused(job, 2, 3, "it has 'accumulated' of tensor 'first.bias'", add);
}

TEST_F(BadState, WithoutTheSharedModelIsRefused) {
  Job job = saving_job();
  job.state_steps = job.local_updates = 2;
  job.fragments = 2;
  expect_refused(job, 1, 2, "lacks 'shared' of tensor 'first.bias'",
                 [](NodeState& state) { state.shared[1].clear(); });
  expect_refused(job, 2, 2, "it has 'shared' of tensor 'first.bias'",
                 [](NodeState& state) { state.shared[1].resize(7); });
}

TEST_F(BadState, GradientsThatOverflowedAreAccumulatedAllTheSame) {
  Job job = saving_job();
  job.local_steps = 2;
  Cut cut = run_until(3, job, {3}).cuts.at(3);
  cut.states[0].accumulated[0][0] = std::numeric_limits<float>::infinity();
  const RunResult run = run_until(4, job, {}, &cut);
  expect_no_errors(run);
  EXPECT_FALSE(std::isfinite(run.replicas[1][0][0]));
}

TEST_P(EveryExchange, NodesThatResumeAfterDifferentStepsAreTold) {
  Job job = suite_job(GetParam(), GetParam().sends == Sends::kTernary ? "terngrad" : "fp32", 4);
  job.state_steps = 1;
  job.progress_limit = 5s;
  job.checksum_steps = 0;
  const RunResult run = run_until(3, job, {2, 3});
  for (std::size_t rank = 0; rank < run.errors.size(); ++rank) {
    SCOPED_TRACE(rank);
    Cut mixed = run.cuts.at(2);
    mixed.states[rank] = run.cuts.at(3).states[rank];
    for (const std::string& error : run_until(6, job, {}, &mixed).errors) {
      EXPECT_NE(error.find("came for step"), std::string::npos) << error;
    }
  }
}

TEST_P(EveryExchange, AWrongModelShowsInTheFirstStepAfterAResume) {
  Job job = suite_job(GetParam(), GetParam().sends == Sends::kTernary ? "terngrad" : "fp32", 2);
  job.state_steps = 1;
  Cut cut = run_until(2, job, {2}).cuts.at(2);
  cut.replicas[1][0][5] += 1;
  for (const std::string& error : run_until(4, job, {}, &cut).errors) {
    EXPECT_NE(error.find("differ before step 3"), std::string::npos) << error;
  }
}

TEST(StateSteps, MustFitTheJob) {
  const auto expect_refused = [](const std::string& part, const Job& job) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { server_nodes(job); });
  };
  Job job = suite_job(kTestedExchanges[0], "3lc", 3);
  job.state_steps = 10;
  job.local_steps = 4;
  expect_refused("every 10 steps", job);
  job.local_steps = 5;
  EXPECT_NO_THROW(server_nodes(job));
  job.backup_workers = 1;
  expect_refused("a job with backup workers has no state", job);
  job = suite_job(kTestedExchanges.back(), "fp32", 3);
  job.state_steps = 10;
  EXPECT_NO_THROW(server_nodes(job));
  job.exchange = "weight-average:mode=asynchronous";
  expect_refused("asynchronous averaging has no state", job);
}

class Moment : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(LocalSteps, Moment, testing::Values(1, 2));

// A worker alone, which needs no other node.
TEST_P(Moment, IsBetweenThePullsAndThePushes) {
  Job job = suite_job(kTestedExchanges[6], "3lc", 1);
  job.local_steps = GetParam();
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(job, *ends[0], descend_once);
  Model replica = zeros(job);
  const auto expect_early = [&] {
    expect_error(ErrorCode::kFailedPrecondition, "take the state when",
                 [&] { return worker->state(); });
  };
  // Before the first step there is that of a job that has not begun.
  if (GetParam() == 1) {
    EXPECT_EQ(worker->state().step, 0U);
  }
  if (GetParam() > 1) expect_early();
  for (std::uint64_t step = 1; step <= 4; ++step) {
    ASSERT_EQ(worker->begin_step(), step);
    if (step > 1 && (step - 1) % static_cast<std::uint64_t>(GetParam()) == 0) expect_early();
    worker->pull(0, replica[0]);
    worker->pull(1, replica[1]);
    worker->pull(2, replica[2]);
    EXPECT_EQ(worker->state().step, step - 1);
    worker->push(2, gradient(job, 0, step, 2));
    expect_early();
    worker->push(1, gradient(job, 0, step, 1));
    worker->push(0, gradient(job, 0, step, 0));
    expect_early();
  }
  worker->finish(spans(replica));
  expect_early();
}

TEST(Moment, IsAfterAnyStepWithAColocatedServer) {
  const Job job = suite_job(kTestedExchanges[1], "3lc", 1);
  const auto ends = make_in_process_network(1);
  const auto worker = make_communicator(job, *ends[0], descend_once);
  Model replica = zeros(job);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    ASSERT_EQ(worker->begin_step(), step);
    for (std::size_t i = 0; i < 3; ++i) worker->pull(i, replica[i]);
    const NodeState state = worker->state();
    EXPECT_EQ(state.step, step - 1);
    EXPECT_EQ(state.pulled[0].size(), job_parts(job)[0].elems);
    for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, 0, step, i));
  }
  worker->finish(spans(replica));
}

TEST(State, ThereIsNoneWhereWorkersDoNotWaitForEachOther) {
  Job job = suite_job(kTestedExchanges.back(), "fp32", 1);
  job.exchange = "weight-average:mode=asynchronous";
  const auto ends = make_in_process_network(1);
  const NodeState state = bare_states(job, 3)[0];
  expect_error(ErrorCode::kInvalidArgument, "asynchronous averaging has no state",
               [&] { make_communicator(job, *ends[0], descend_once, nullptr, &state); });
  const auto fresh = make_in_process_network(1);
  const auto worker = make_communicator(job, *fresh[0], descend_once);
  Model replica = zeros(job);
  worker->begin_step();
  expect_error(ErrorCode::kInvalidArgument, "asynchronous averaging has no state",
               [&] { return worker->state(); });
  worker->finish(spans(replica));
}

TEST(State, AStepMustBeBegunAfterAResume) {
  const Job job = suite_job(kTestedExchanges[6], "fp32", 1);
  const auto ends = make_in_process_network(1);
  const NodeState state = bare_states(job, 3)[0];
  const auto worker = make_communicator(job, *ends[0], descend_once, nullptr, &state);
  Model replica = zeros(job);
  expect_error(ErrorCode::kFailedPrecondition, "begin a step",
               [&] { worker->pull(0, replica[0]); });
}

// A worker that finishes at once has nothing to wait for.
TEST_P(EveryExchange, AJobMayEndWhereItResumed) {
  Job job = suite_job(GetParam(), GetParam().sends == Sends::kTernary ? "terngrad" : "fp32", 2);
  job.state_steps = 1;
  const RunResult run = run_until(3, job, {3});
  const RunResult resumed = run_until(3, job, {}, &run.cuts.at(3));
  expect_no_errors(resumed);
  for (std::size_t worker = 0; worker < 2; ++worker) {
    expect_equal_bits(run.replicas[worker], resumed.replicas[worker]);
  }
}

TEST(WeightAverage, ResumesBetweenTwoAverages) {
  for (const char* codec : {"fp32", "oland-raj:bits=8,ef=on"}) {
    Job job = suite_job(kTestedExchanges.back(), codec, 3);
    job.exchange = "weight-average:every=3";
    job.state_steps = 3;
    for (const std::uint64_t cut : {2, 3, 4}) expect_resumed_equals_uninterrupted(job, cut, 8);
  }
}

TEST(SavingServers, EndTheJobWhereTheStateCannotBeSaved) {
  Job job = suite_job(kTestedExchanges[0], "3lc", 1);
  job.servers = 1;
  job.state_steps = 2;
  const auto ends = make_in_process_network(2);
  std::string error;
  std::thread server([&] {
    const auto full = [](const NodeState&) { throw Error(ErrorCode::kInternal, "disk full"); };
    try {
      run_server(job, *ends[1], descend_once, nullptr, nullptr, full);
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  const auto worker = make_communicator(job, *ends[0]);
  Model replica = zeros(job);
  // The third step's pulls need all of the second, and the server has not sent all of that.
  const auto [code, sentence] = error_of([&] {
    for (std::uint64_t step = worker->begin_step(); step <= 3; step = worker->begin_step()) {
      for (std::size_t i = 0; i < 3; ++i) worker->pull(i, replica[i]);
      ASSERT_LE(step, 2);
      for (std::size_t i = 3; i-- > 0;) worker->push(i, gradient(job, 0, step, i));
    }
  });
  server.join();
  EXPECT_EQ(code, ErrorCode::kAborted);
  EXPECT_NE(sentence.find("disk full"), std::string::npos) << sentence;
  EXPECT_NE(error.find("disk full"), std::string::npos) << error;
}

// No worker of this library does that.
// What the worker waits for has been sent.
TEST(SavingServers, MayWaitForEachOther) {
  Job job;
  job.tensors = {{"weight", {64, 16}, TensorKind::kDense}};
  job.exchange = "parameter-server";
  job.workers = 1;
  job.servers = 3;
  job.push_codec = job.pull_codec = "fp32";
  job.policy = "";
  job.part_values = 16;
  job.bucket_bytes = 4;
  job.state_steps = 1;
  job.servers_save_together = true;
  job.deadline = job.progress_limit = std::chrono::seconds(20);
  const auto ends = make_in_process_network(4);
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, int> saved;  // servers, by step
  std::vector<std::thread> servers;
  for (const int rank : {1, 2, 3}) {
    servers.emplace_back([&, rank] {
      const auto save = [&](const NodeState& state) {
        std::unique_lock lock(mutex);
        ++saved[state.step];
        changed.notify_all();
        EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(5),
                                     [&] { return saved[state.step] == 3; }));
      };
      EXPECT_NO_THROW(run_server(job, *ends[static_cast<std::size_t>(rank)], descend_once, nullptr,
                                 nullptr, save));
    });
  }
  const auto worker = make_communicator(job, *ends[0], {});
  Model model = zeros(job);
  for (int step = 0; step < 3; ++step) {
    worker->begin_step();
    worker->pull(0, model[0]);
    worker->push(0, gradient(job, 0, 1, 0));
  }
  worker->finish(spans(model));
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(saved.size(), 3U);
}

TEST(SavingServers, RefuseATensorThatIsAStepAheadOfOthers) {
  Job job = suite_job(kTestedExchanges[0], "fp32", 1);
  job.servers = 1;
  job.state_steps = 1;
  const auto ends = make_in_process_network(2);
  const auto push = [&](std::uint32_t tensor, std::uint64_t step) {
    const auto values = gradient(job, 0, step, tensor);
    MessageWriter writer({.kind = MessageKind::kPush, .sender = 0, .step = step});
    writer.add({.tensor = tensor,
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = std::nullopt,
                .payload = std::as_bytes(std::span(values))});
    ends[0]->send(1, std::make_shared<const Bytes>(writer.take()));
  };
  push(2, 1);
  push(2, 2);
  push(1, 1);
  push(0, 1);
  expect_error(ErrorCode::kFailedPrecondition, "step 1 is to be saved", [&] {
    run_server(job, *ends[1], descend_once, nullptr, nullptr,
               [](const NodeState&) { FAIL() << "a state of different steps"; });
  });
}

// ---- An encoder's state is its residual, whatever the codec.

TEST(EveryCodec, GoesOnFromItsResidualAlone) {
  const Job job = suite_job(kTestedExchanges[6], "fp32", 1);
  constexpr std::uint64_t kSteps = 8;
  for (const TestedCodec& tested : kTestedCodecs) {
    const std::string text = tested.text;
    for (const char* feedback : {"", "ef=on", "ef=off"}) {
      std::string full = text;
      if (*feedback != '\0') {
        if (text.find("ef=") != std::string::npos) continue;
        full += (text.find(':') == std::string::npos ? ":" : ",") + std::string(feedback);
      }
      SCOPED_TRACE(full);
      const auto codec = [&]() -> std::shared_ptr<const Codec> {
        try {
          return make_codec(full);
        } catch (const Error&) {
          return nullptr;  // a codec without that parameter
        }
      }();
      if (!codec) continue;
      const EncoderContext context{.seed = 7, .sender = 1, .tensor = 2, .kind = TensorKind::kDense};
      const std::size_t elems = job.tensors[0].elems();
      auto uninterrupted = codec->make_encoder(elems, context);
      auto resumed = codec->make_encoder(elems, context);
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        auto next = codec->make_encoder(elems, context);
        std::ranges::copy(resumed->residual(), next->residual().begin());
        resumed = std::move(next);
        const auto values = gradient(job, 0, step, 0);
        Bytes expected;
        Bytes bytes;
        const Encoded encoded = uninterrupted->encode(values, step, expected);
        EXPECT_EQ(resumed->encode(values, step, bytes).codec, encoded.codec);
        EXPECT_EQ(bytes, expected) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tersewire
