// Every exchange with every codec over threads as ranks; and what becomes of a job whose messages
// are late, lost, or rubbish.
#include "exchange_suite.h"

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "faulty_transports.h"

namespace tersewire {
namespace {

// Those that are encoded in each of the ways in which threads share a tensor's parts.
const std::set<std::string> kCodecsInThreads{"3lc", "int8", "terngrad:clip=off",
                                             "topk:fraction=0.25"};
// What sanitizers find here does not depend on how many workers there are, nor on every codec.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::array kWorkers{2, 5};
bool is_run(const TestedCodec& codec) { return kCodecsInThreads.contains(codec.text); }
#else
constexpr std::array kWorkers{1, 2, 3, 5, 8};
bool is_run(const TestedCodec& /*codec*/) { return true; }
#endif

// ---- Every exchange with every codec.

class EveryExchange : public testing::TestWithParam<TestedExchange> {};

INSTANTIATE_TEST_SUITE_P(All, EveryExchange, testing::ValuesIn(kTestedExchanges), exchange_name);

TEST(ExchangeSuite, NamesEveryCodec) {
  std::set<std::string> tested;
  for (const TestedCodec& codec : kTestedCodecs) {
    tested.insert(std::string(codec_name(make_codec(codec.text)->id())));
  }
  std::set<std::string> existing;
  for (const CodecDescription& codec : codec_descriptions()) existing.insert(codec.name);
  EXPECT_EQ(tested, existing);
}

void expect_refused(const Job& job) {
  try {
    server_nodes(job);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const bool says_why = std::string(error.what()).find("does not fit") != std::string::npos ||
                          std::string(error.what()).find("scaler sharing") != std::string::npos;
    EXPECT_TRUE(says_why) << error.what();
  }
}

// The same job with its tensors in parts: of 65, 7 and 31 values 5, 1 and 2.
Job cut(Job job) {
  job.part_values = 16;
  return job;
}

void expect_right(const TestedExchange& exchange, const TestedCodec& codec, const Job& job) {
  const Outcome outcome = run_job(job, suite_behaviour(codec));
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  expect_like_reference(exchange, codec, job, outcome.replicas[0]);
  if (!exchange_traits(job.exchange).workers_own_model)
    expect_like_reference(exchange, codec, job, outcome.global);
}

TEST_P(EveryExchange, AveragesLikeAPlainReferenceOrRefusesTheCodec) {
  for (const TestedCodec& codec : kTestedCodecs) {
    if (!is_run(codec)) continue;
    for (const int workers : kWorkers) {
      if (workers % GetParam().workers_divide_by != 0) continue;
      SCOPED_TRACE(testing::Message() << codec.text << ", " << workers << " workers");
      const Job job = suite_job(GetParam(), codec.text, workers);
      if (fits(GetParam(), codec)) {
        expect_right(GetParam(), codec, job);
        expect_right(GetParam(), codec, cut(job));
      } else {
        expect_refused(job);
      }
    }
  }
}

// Several parts at once, and several threads in one.
TEST_P(EveryExchange, ComesToTheSameBitsWithThreads) {
  ThreadPool pool(3);
  int tested = 0;
  for (const TestedCodec& codec : kTestedCodecs) {
    if (!kCodecsInThreads.contains(codec.text) || !fits(GetParam(), codec)) continue;
    SCOPED_TRACE(codec.text);
    ++tested;
    Job job = suite_job(GetParam(), codec.text, 4);
    job.tensors = {{"large", {200'000}, TensorKind::kDense}, {"small", {31}, TensorKind::kBias}};
    job.part_values = std::size_t{1} << 15;
    const Outcome alone = run_job(job, {.steps = 2, .before_step = {}, .gradient = {}});
    const Outcome helped =
        run_job(job, {.steps = 2, .before_step = {}, .gradient = {}, .pool = &pool});
    expect_no_errors(helped);
    expect_equal_bits(alone.global, helped.global);
    expect_equal_bits(alone.replicas[0], helped.replicas[0]);
    for (std::size_t rank = 0; rank < alone.counters.size(); ++rank) {
      EXPECT_EQ(alone.counters[rank].pulled_values, helped.counters[rank].pulled_values);
      EXPECT_EQ(alone.counters[rank].pushed_bytes, helped.counters[rank].pushed_bytes);
    }
  }
  EXPECT_GT(tested, 0);
}

// ---- Faults. Four workers and values whose sums are exact, so that whatever a worker holds in the
// end must be the model of some step, to the bit; with ternary sums, that of a job without faults.

constexpr int kFaultyWorkers = 4;
constexpr std::uint64_t kFaultySteps = 24;

Job faulty_job(const TestedExchange& exchange, std::chrono::milliseconds deadline = 20s) {
  Job job =
      suite_job(exchange, exchange.sends == Sends::kTernary ? "terngrad" : "fp32", kFaultyWorkers);
  job.deadline = deadline;
  return job;
}

Behaviour faulty_behaviour() {
  Behaviour behaviour = suite_behaviour(kTestedCodecs.front());
  behaviour.steps = kFaultySteps;
  return behaviour;
}

// Runs the job with the ends of some ranks wrapped.
using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport> end)>;

Outcome run_wrapped(const Job& job, const Wrap& wrap) {
  auto ends = make_in_process_network(job.workers + server_nodes(job));
  for (auto& end : ends) end = wrap(std::move(end));
  return run_job_over(ends, job, faulty_behaviour());
}

Outcome run_with_one_wrapped(const Job& job, int rank, const Wrap& wrap) {
  return run_wrapped(job, [&](std::unique_ptr<Transport> end) {
    return end->rank() == rank ? wrap(std::move(end)) : std::move(end);
  });
}

// The model after so many steps.
std::vector<std::vector<double>> right_model(const Job& job, std::uint64_t steps) {
  if (job.push_codec == "fp32") return reference(job, faulty_behaviour(), steps);
  static std::map<std::tuple<std::string, std::optional<int>, std::uint64_t>, Model> known;
  Model& model = known[{job.exchange, job.servers, steps}];
  if (model.empty()) {
    Behaviour behaviour = faulty_behaviour();
    behaviour.steps = steps;
    model = run_job(job, behaviour).replicas[0];
  }
  std::vector<std::vector<double>> right;
  for (const auto& values : model) right.emplace_back(values.begin(), values.end());
  return right;
}

bool is_of_some_step(const std::vector<float>& values,
                     const std::vector<std::vector<double>>& by_step) {
  return std::ranges::any_of(by_step, [&](const std::vector<double>& expected) {
    return std::ranges::equal(values, expected);
  });
}

void expect_nobody_is_wrong(const Job& job, const Outcome& outcome) {
  std::vector<std::vector<std::vector<double>>> by_tensor(job.tensors.size());
  for (std::uint64_t step = 0; step <= kFaultySteps; ++step) {
    const auto model = right_model(job, step);
    for (std::size_t i = 0; i < model.size(); ++i) by_tensor[i].push_back(model[i]);
  }
  for (const Model& replica : outcome.replicas) {
    for (std::size_t i = 0; i < replica.size(); ++i) {
      EXPECT_TRUE(is_of_some_step(replica[i], by_tensor[i])) << "tensor " << i;
    }
  }
}

void expect_everyone_failed(const Job& job, const Outcome& outcome) {
  for (std::size_t rank = 0; rank < outcome.errors.size(); ++rank) {
    EXPECT_NE(outcome.errors[rank], "") << "rank " << rank << " took it for a success";
    // Nor is any told of a rank that the network has not.
    for (std::size_t other = outcome.errors.size(); other < 2 * outcome.errors.size(); ++other) {
      for (const char* word : {"rank ", "server "}) {
        const std::string named = word + std::to_string(other);
        EXPECT_EQ(outcome.errors[rank].find(named), std::string::npos) << outcome.errors[rank];
      }
    }
  }
  expect_nobody_is_wrong(job, outcome);
}

void expect_finished(const Job& job, const Outcome& outcome) {
  expect_no_errors(outcome);
  const auto expected = right_model(job, kFaultySteps);
  for (const Model& replica : outcome.replicas) {
    for (std::size_t i = 0; i < replica.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(replica[i], expected[i])) << "tensor " << i;
    }
  }
}

// A worker, and the last rank: a server where there is one.
std::array<int, 2> peers(const Job& job) { return {1, job.workers + server_nodes(job) - 1}; }

TEST_P(EveryExchange, MessagesThatOvertakeEachOtherChangeNothing) {
  const Job job = faulty_job(GetParam());
  for (unsigned seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    expect_finished(job, run_wrapped(job, [&](std::unique_ptr<Transport> end) {
                      const unsigned own = 100 * seed + static_cast<unsigned>(end->rank());
                      return std::make_unique<DelayingTransport>(std::move(end), own);
                    }));
  }
}

TEST_P(EveryExchange, LimitedLinksChangeNothing) {
  const Job job = faulty_job(GetParam());
  const auto ends =
      make_in_process_network(job.workers + server_nodes(job), {.bits_per_second = 1e8});
  expect_finished(job, run_job_over(ends, job, faulty_behaviour()));
}

TEST_P(EveryExchange, APeerThatIsCutOffEndsTheJobForEveryone) {
  const Job job = faulty_job(GetParam(), 300ms);
  for (const int peer : peers(job)) {
    SCOPED_TRACE(peer);
    Connection connection;
    const Outcome outcome =
        run_wrapped(job, [&](std::unique_ptr<Transport> end) -> std::unique_ptr<Transport> {
          if (end->rank() == peer) {
            return std::make_unique<LostTransport>(std::move(end), 7, connection);
          }
          return std::make_unique<FarTransport>(std::move(end), peer, connection);
        });
    expect_everyone_failed(job, outcome);
    const std::string silent = "has heard nothing from rank " + std::to_string(peer) + " for ";
    for (std::size_t rank = 0; rank < outcome.errors.size(); ++rank) {
      // The one that is cut off hears nobody.
      const bool cut_off = static_cast<int>(rank) == peer;
      const std::string& error = outcome.errors[rank];
      EXPECT_NE(error.find(cut_off ? "has heard nothing from rank " : silent), std::string::npos)
          << error;
    }
  }
}

TEST_P(EveryExchange, APeerThatDoesNothingForTheProgressLimitEndsTheJobForEveryone) {
  Job job = faulty_job(GetParam());
  job.progress_limit = 200ms;
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  Behaviour behaviour = faulty_behaviour();
  // Until others have ended the job, however late they wake up.
  behaviour.before_step = [&](int worker, std::uint64_t step) {
    while (worker == 1 && step == 3 && !is_over(*ends[1])) std::this_thread::sleep_for(1ms);
  };
  const Outcome outcome = run_job_over(ends, job, behaviour);
  expect_everyone_failed(job, outcome);
  for (const std::string& error : outcome.errors) {
    const bool of_server =
        error.find("nothing has arrived at the server on rank ") != std::string::npos;
    EXPECT_TRUE(of_server || error.find("nothing has arrived at rank ") != std::string::npos)
        << error;
    EXPECT_NE(error.find("progress limit"), std::string::npos) << error;
  }
}

TEST_P(EveryExchange, APeerBusyForTenTimesTheDeadlineChangesNothing) {
  const Job job = faulty_job(GetParam(), 30ms);
  Behaviour behaviour = faulty_behaviour();
  behaviour.before_step = [](int worker, std::uint64_t step) {
    if (worker == 1 && step == 3) std::this_thread::sleep_for(300ms);
  };
  expect_finished(job, run_job(job, behaviour));
}

TEST_P(EveryExchange, APeerSlowWithinTheDeadlineChangesNothing) {
  const Job job = faulty_job(GetParam());
  Behaviour behaviour = faulty_behaviour();
  behaviour.before_step = [](int worker, std::uint64_t step) {
    if (worker == 1 && step % 4 == 3) std::this_thread::sleep_for(40ms);
  };
  expect_finished(job, run_job(job, behaviour));
}

// ---- Rubbish.

using Messages = SpoilingTransport::Messages;

Messages one(Bytes bytes) { return {std::make_shared<const Bytes>(std::move(bytes))}; }

Messages random_bytes(const Messages& sent, std::mt19937& random) {
  Bytes bytes(sent.back()->size());
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return one(std::move(bytes));
}

Messages with_a_flipped_bit(const Messages& sent, std::mt19937& random) {
  Bytes bytes = *sent.back();
  bytes[random() % bytes.size()] ^= std::byte{1} << (random() % 8);
  return one(std::move(bytes));
}

Messages cut_short(const Messages& sent, std::mt19937& random) {
  Bytes bytes = *sent.back();
  bytes.resize(random() % bytes.size());
  return one(std::move(bytes));
}

Messages with_more_behind(const Messages& sent, std::mt19937& random) {
  Bytes bytes = *sent.back();
  bytes.resize(bytes.size() + 1 + random() % 50);
  return one(std::move(bytes));
}

Messages twice(const Messages& sent, std::mt19937& /*random*/) {
  return {sent.back(), sent.back()};
}

// Not one that is the same, for others.
Messages an_old_one(const Messages& sent, std::mt19937& random) {
  Messages others = sent;
  std::erase_if(others, [&](const SharedBytes& bytes) { return *bytes == *sent.back(); });
  return {others[random() % others.size()]};
}

struct Rubbish {
  const char* name;
  Messages (*make)(const Messages& sent, std::mt19937& random);
};

constexpr std::array kRubbish{Rubbish{"random bytes", random_bytes},
                              Rubbish{"a flipped bit", with_a_flipped_bit},
                              Rubbish{"cut short", cut_short},
                              Rubbish{"more behind", with_more_behind},
                              Rubbish{"twice", twice},
                              Rubbish{"an old one", an_old_one}};

// Names the peer, as the sender of what it refuses or as a node that was sent nothing any more.
bool blames(const std::string& error, const Job& job, int peer) {
  // A worker's node has a server's rank too, with servers on the workers' nodes.
  if (job.servers == Job::kColocated && blames(error, {}, job.workers + peer)) return true;
  const std::string number = " " + std::to_string(peer);
  return std::ranges::any_of(
      std::array{"rank", "worker", "server", "aggregator"},
      [&](const char* what) { return error.find(what + number) != std::string::npos; });
}

TEST_P(EveryExchange, RubbishFromAPeerEndsTheJobForEveryone) {
  Job job = faulty_job(GetParam());
  job.progress_limit = 5s;
  for (const int peer : peers(job)) {
    for (const Rubbish& rubbish : kRubbish) {
      for (unsigned seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(testing::Message() << rubbish.name << " by " << peer << ", seed " << seed);
        std::mt19937 random(seed);
        const auto spoil = [&](const Messages& sent) { return rubbish.make(sent, random); };
        const Outcome outcome = run_with_one_wrapped(job, peer, [&](auto end) {
          return std::make_unique<SpoilingTransport>(std::move(end), 2 + 3 * seed, spoil);
        });
        expect_everyone_failed(job, outcome);
        for (const std::string& error : outcome.errors)
          EXPECT_TRUE(blames(error, job, peer)) << error;
      }
    }
  }
}

}  // namespace
}  // namespace tersewire
